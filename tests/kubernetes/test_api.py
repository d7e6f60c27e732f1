"""The API client against a server that answers what each test says: repeats, refusals, pages, watches, kubeconfigs."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from plumbline.errors import ConfigError, LaunchError
from plumbline.kubernetes import access
from plumbline.kubernetes.api import Access, Api, ApiError, in_cluster
from plumbline.kubernetes.mirror import Mirror
from tests.kubernetes.profiles import profile
from tests.kubernetes.runs import wait_for

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


class Server:
    """Answers requests from a list, one after the other; keeps what was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, dict(self.headers), json.loads(body) if body else None))
                status, data, headers = outer.answers.pop(0)
                if status == 0:
                    return  # closes the connection without a word
                text = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(text)

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self.answer
                raise AttributeError(name)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def say(self, status: int, data: Any = None, **headers: str) -> None:
        self.answers.append((status, {} if data is None else data, headers))


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def api(server: Server, patience_s: float = 20) -> Api:
    return Api(Access(server=server.url, token="t"), patience_s=patience_s)


@pytest.mark.parametrize("fault", [0, 429, 500, 503])
def test_what_may_pass_is_asked_again(server: Server, fault: int) -> None:
    server.say(fault, {"message": "later"})
    server.say(200, {"kind": "Pod"})
    assert api(server).get("/api/v1/x") == {"kind": "Pod"}
    assert [method for method, *_ in server.asked] == ["GET", "GET"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422])
def test_a_refusal_is_final_and_in_the_apis_words(server: Server, status: int) -> None:
    server.say(status, {"kind": "Status", "message": "no, because", "reason": "Why"})
    with pytest.raises(ApiError, match=f"POST /x: {status} Why: no, because") as caught:
        api(server).create("/x", {"a": 1})
    assert (caught.value.status, caught.value.reason, caught.value.outage) == (status, "Why", False)
    assert len(server.asked) == 1


def test_patience_ends(server: Server) -> None:
    server.say(500, b"<html>down</html>")
    with pytest.raises(ApiError, match="500") as caught:
        api(server, patience_s=0).get("/x")
    assert caught.value.outage


def test_nobody_there_is_an_outage() -> None:
    with pytest.raises(LaunchError, match="does not answer") as caught:
        Api(Access(server="http://127.0.0.1:9"), patience_s=0).get("/x")
    assert caught.value.status is None


def test_a_list_is_read_page_by_page_and_begun_again_when_it_grew_too_old(server: Server) -> None:
    server.say(200, {"items": [{"a": 1}], "metadata": {"continue": "c1", "resourceVersion": "7"}})
    server.say(410, {"message": "too old", "reason": "Expired"})
    server.say(200, {"items": [{"a": 2}], "metadata": {"continue": "c2", "resourceVersion": "9"}})
    server.say(200, {"items": [{"a": 3}], "metadata": {"resourceVersion": "9"}})
    assert api(server).list("/x", {"labelSelector": "a=b"}) == ([{"a": 2}, {"a": 3}], "9")
    assert "continue=c1" in server.asked[1][1]
    assert "continue" not in server.asked[2][1]
    assert all("labelSelector=a%3Db" in path for _, path, *_ in server.asked)


def test_a_watch_gives_changes_until_it_is_closed_or_too_old(server: Server) -> None:
    lines = [{"type": "ADDED", "object": {"n": 1}}, {"type": "BOOKMARK", "object": {"n": 2}}]
    server.say(200, b"".join(json.dumps(line).encode() + b"\n" for line in lines) + b'{"type":"ADDED","obj')
    assert list(api(server).watch("/x", {}, "5")) == [("ADDED", {"n": 1}), ("BOOKMARK", {"n": 2})]
    assert "resourceVersion=5" in server.asked[0][1]
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old resource version"}}
    server.say(200, json.dumps(gone).encode() + b"\n")
    with pytest.raises(ApiError, match="too old") as caught:
        list(api(server).watch("/x", {}, "5"))
    assert caught.value.status == 410


def test_a_mirror_survives_what_is_no_answer_of_kubernetes(server: Server) -> None:
    pod = {"metadata": {"uid": "u", "name": "p"}}
    server.say(200, {"items": [], "metadata": {"resourceVersion": "1"}})
    server.say(200, b"<html>a proxy's page</html>\n")
    server.say(200, {"items": "nonsense"})
    server.say(200, {"items": [pod], "metadata": {"resourceVersion": "2"}})
    server.say(200, b"")
    mirror = Mirror(api(server), "/x", "a=b")
    mirror.start()
    wait_for(mirror.objects)
    mirror.stop()
    assert [item["metadata"]["name"] for item in mirror.objects()] == ["p"]
    assert not mirror.outage


def test_deleting_what_is_gone_is_no_error(server: Server) -> None:
    server.say(404, {"reason": "NotFound"})
    server.say(200)
    assert api(server).delete("/x") is False
    assert api(server).delete("/x") is True
    assert server.asked[1][3] == {"propagationPolicy": "Background"}


def test_a_pods_token_is_read_anew_each_time(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "one"), ("namespace", "ns")):
        (tmp_path / name).write_text(text)
    host, port = server.url.removeprefix("http://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("KUBERNETES_SERVICE_SCHEME", "http")
    monkeypatch.setenv("PLUMBLINE_SERVICE_ACCOUNT", str(tmp_path))
    chosen = Api(in_cluster())
    assert chosen.access.namespace == "ns"
    for token in ("one", "two"):
        (tmp_path / "token").write_text(token)
        server.say(200)
        chosen.get("/x")
    assert [headers["Authorization"] for _, _, headers, _ in server.asked] == ["Bearer one", "Bearer two"]


def test_outside_of_a_pod_there_is_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ApiError, match="not in a pod"):
        in_cluster()


# -- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="tls", scope="module")
def _tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give a self-signed certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def secure(server: Server, certificate: Path, key: Path) -> str:
    """Have a server speak TLS and ask for a client's certificate; give its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    return server.url.replace("http://", "https://")


@needs_openssl
def test_both_sides_show_certificates(server: Server, tls: tuple[Path, Path]) -> None:
    url = secure(server, *tls)
    server.say(200, {"kind": "Pod"})
    own = "\n".join(path.read_text() for path in tls)
    known = Access(server=url, ca_data=tls[0].read_text(), client_certificate=own)
    assert Api(known, patience_s=0).get("/x") == {"kind": "Pod"}


@needs_openssl
def test_a_server_that_is_not_known_gets_no_token(server: Server, tls: tuple[Path, Path]) -> None:
    url = secure(server, *tls)
    with pytest.raises(ApiError, match="certificate verify failed"):
        Api(Access(server=url, token="secret"), patience_s=0).get("/x")
    assert server.asked == []


# -- kubeconfig --------------------------------------------------------------------------------------------------


def kubeconfig(**user: Any) -> dict[str, Any]:
    return {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://h:6443", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": user}],
    }


def test_a_kubeconfig_is_understood(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("KEY")
    certificate = base64.b64encode(b"CERT").decode()
    data = kubeconfig(token="t", **{"client-certificate-data": certificate, "client-key": "key"})
    found = access.from_kubeconfig(data, str(tmp_path / "config"))
    assert (found.server, found.namespace, found.token, found.insecure) == ("https://h:6443", "ns", "t", True)
    assert found.client_certificate == "CERT\nKEY"


def test_a_credential_plugin_gives_the_token(tmp_path: Path) -> None:
    answer = json.dumps({"status": {"token": "from-plugin"}})
    data = kubeconfig(
        exec={"command": "sh", "args": ["-c", 'echo "$ANSWER"'], "env": [{"name": "ANSWER", "value": answer}]}
    )
    assert access.from_kubeconfig(data, "config").bearer() == "from-plugin"
    failing = access.from_kubeconfig(kubeconfig(exec={"command": "false"}), "config")
    with pytest.raises(ConfigError, match="credential plugin false failed"):
        failing.bearer()
    absent = access.from_kubeconfig(kubeconfig(exec={"command": "/no/plugin"}), "config")
    with pytest.raises(ConfigError, match=r"credential plugin /no/plugin failed: No such file or directory$"):
        absent.bearer()


def test_a_wrong_context_has_a_near_match() -> None:
    with pytest.raises(ConfigError, match="no context 'b'"):
        access.from_kubeconfig(kubeconfig(), "config", "b")
    with pytest.raises(ConfigError, match="client-key nothing: No such file"):
        access.from_kubeconfig(kubeconfig(**{"client-key": "nothing"}), "config")


def test_airflows_connections_are_read_by_airflow_only(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = profile({"kubernetes": {"access": {"connection": "k8s"}}})
    monkeypatch.setattr(access, "_lookups", [])
    with pytest.raises(ConfigError, match=r"kubernetes.access.connection k8s: only Airflow knows its connections"):
        access.connect(chosen)
    access.use_connections({"k8s": {"kube_config": json.dumps(kubeconfig(token="t"))}}.__getitem__)
    assert access.connect(chosen).access.token == "t"


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ({}, "names no way to the API, so the kubeconfig {nowhere} is taken: {nowhere}: cannot read: No such file"),
        (
            {"kubeconfig": "/no/config"},
            "kubernetes.access.kubeconfig /no/config: /no/config: cannot read: No such file",
        ),
        ({"in_cluster": True}, "kubernetes.access.in_cluster: not in a pod with a service account token"),
    ],
)
def test_a_way_that_leads_nowhere_is_told_with_its_key_and_the_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, object], way: str
) -> None:
    nowhere = tmp_path / "nowhere"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(nowhere))
    chosen = profile({"kubernetes": {"access": given}})
    with pytest.raises(access.NoAccessError) as refused:
        access.connect(chosen)
    message = str(refused.value)
    assert message.startswith(f"profile {chosen.name}: ") and way.format(nowhere=nowhere) in message
    for choice in ("kubeconfig: FILE", "in_cluster: true", "connection: NAME", "KUBECONFIG"):
        assert choice in message
    assert message.endswith(f"`plumbline doctor {chosen.name}` tells more")


def test_the_default_is_what_kubectl_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig(token="mine")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert access.connect(profile()).access.token == "mine"
