"""A client of the Kubernetes API. Standard library only: the launcher's pod has nothing else.

Requests are repeated while the API can't answer (no connection, 429, 5xx) for as long as the caller has patience;
refusals (other 4xx) are final. Every error is an ApiError with the API's own words.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from plumbline.errors import LaunchError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500
"""Objects a page of a list: a large cluster's list is not one answer."""
REQUEST_LIMIT_S = 30.0
_JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
Object = dict[str, Any]


class ApiError(LaunchError):
    """The API refused, or did not answer. `status` is None where nobody answered."""

    def __init__(self, message: str, *, status: int | None = None, reason: str = "", retry_after_s: float = 0) -> None:
        """Keep the API's own reason, such as AlreadyExists or Forbidden."""
        super().__init__(message)
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s

    @property
    def outage(self) -> bool:
        """Whether the API may answer the same request later."""
        return self.status is None or self.status == 429 or self.status >= 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the API is and who asks. `token_file` is read anew for each request: tokens in pods are replaced."""

    server: str
    namespace: str = "default"
    ca_file: str | None = None
    ca_data: str | None = None
    """PEM."""
    token: str | None = None
    token_file: str | None = None
    token_command: Callable[[], str] | None = None
    client_certificate: str | None = None
    """PEM: certificate and key."""
    insecure: bool = False
    in_cluster: bool = False
    """Whether this is a pod that speaks to its own cluster."""

    def bearer(self) -> str | None:
        """Give the token to send, or None."""
        if self.token_command is not None:
            return self.token_command()
        if self.token_file:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        return self.token


def in_cluster() -> Access:
    """Give the access of this pod's own service account. Raises ApiError outside of a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    folder = Path(os.environ.get("PLUMBLINE_SERVICE_ACCOUNT", SERVICE_ACCOUNT))
    if not host or not (folder / "token").is_file():
        raise ApiError("not in a pod with a service account token: KUBERNETES_SERVICE_HOST or the token is missing")
    scheme = os.environ.get("KUBERNETES_SERVICE_SCHEME", "https")
    ca = folder / "ca.crt"
    return Access(
        server=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=(folder / "namespace").read_text(encoding="utf-8").strip(),
        ca_file=str(ca) if ca.is_file() else None,
        token_file=str(folder / "token"),
        in_cluster=True,
    )


class Api:
    """Requests to one API server. Safe to use from several threads."""

    def __init__(self, access: Access, *, patience_s: float = 20.0, most_per_s: float | None = None) -> None:
        """Prepare TLS; nothing is asked yet. `patience_s`: how long an API that doesn't answer is asked again.

        `most_per_s` spaces requests out, over all threads: a thousand launches share the API with everybody else.
        """
        self.access = access
        self.patience_s = patience_s
        self._space_s = 1 / most_per_s if most_per_s else 0.0
        self._free_at = 0.0
        self._turn = threading.Lock()
        handlers: list[urllib.request.BaseHandler] = []
        if access.server.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=_tls(access)))
        if access.in_cluster:
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy of the image's environment is not for this
        self._open = urllib.request.build_opener(*handlers).open

    def get(self, path: str, query: Mapping[str, str] | None = None, *, patience_s: float | None = None) -> Object:
        """Read one object. Raises ApiError."""
        return self.ask("GET", path, query=query, patience_s=patience_s)

    def create(
        self,
        path: str,
        body: Mapping[str, Any],
        query: Mapping[str, str] | None = None,
        *,
        patience_s: float | None = None,
    ) -> Object:
        """Create an object. A request repeated after a lost answer may meet its own object: then status is 409."""
        return self.ask("POST", path, body, query=query, patience_s=patience_s)

    def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        """Replace an object; one that was changed since it was read gives status 409."""
        return self.ask("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Object:
        """Merge into an object."""
        return self.ask("PATCH", path, body, content_type=MERGE_PATCH)

    def delete(self, path: str, *, policy: str = "Background", patience_s: float | None = None) -> bool:
        """Delete an object, its dependents too. Gives whether it was there. Raises ApiError."""
        try:
            self.ask("DELETE", path, {"propagationPolicy": policy}, patience_s=patience_s)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def list(
        self, path: str, query: Mapping[str, str] | None = None, *, patience_s: float | None = None
    ) -> tuple[list[Object], str]:
        """List objects page by page; give them and the version that a watch can go on from. Raises ApiError."""
        items: list[Object] = []
        more: dict[str, str] = {}
        while True:
            try:
                page = self.get(path, {**(query or {}), "limit": str(PAGE), **more}, patience_s=patience_s)
            except ApiError as error:
                if error.status != 410 or not more:
                    raise
                items, more = [], {}  # the list grew too old between two pages
                continue
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            more = {"continue": metadata["continue"]}

    def watch(
        self, path: str, query: Mapping[str, str], version: str, *, seconds: int = 300
    ) -> Iterator[tuple[str, Object]]:
        """Give (kind of change, object) until the server closes. Raises ApiError, with 410 for a version too old."""
        asked = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds),
                 "allowWatchBookmarks": "true"}  # fmt: skip
        with self._send("GET", path, None, asked, _JSON, limit_s=seconds + 10) as answer:
            for line in _lines(answer):
                change = json.loads(line)
                if change["type"] == "ERROR":
                    told = change.get("object") or {}
                    raise ApiError(
                        str(told.get("message", "the watch failed")),
                        status=told.get("code"), reason=str(told.get("reason", "")),
                    )  # fmt: skip
                yield change["type"], change["object"]

    def text(self, path: str, query: Mapping[str, str], *, most_bytes: int = 1 << 20) -> str:
        """Read what is no object, such as a log, at most `most_bytes` of it; asked once. Raises ApiError."""
        with self._send("GET", path, None, query, "*/*", limit_s=REQUEST_LIMIT_S) as answer:
            try:
                return answer.read(most_bytes).decode(errors="replace")
            except (OSError, HTTPException) as error:
                raise ApiError(f"GET {path}: {error}") from error

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
        patience_s: float | None = None,
    ) -> Object:
        """Send one request, again and again while the API can't answer it. Raises ApiError."""
        end = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        pause = 0.25
        while True:
            try:
                with self._send(method, path, body, query, content_type, limit_s=REQUEST_LIMIT_S) as answer:
                    return _object(answer, f"{method} {path}")
            except ApiError as error:
                wait = max(error.retry_after_s, pause * random.uniform(0.5, 1))  # noqa: S311 - spreads retries
                if not error.outage or time.monotonic() + wait > end:
                    raise
            time.sleep(wait)
            pause = min(pause * 2, 10)

    def _wait_for_turn(self) -> None:
        if not self._space_s:
            return
        with self._turn:
            at = max(self._free_at, time.monotonic())
            self._free_at = at + self._space_s
        time.sleep(max(0.0, at - time.monotonic()))

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
        content_type: str,
        *,
        limit_s: float,
    ) -> HTTPResponse:
        url = self.access.server.rstrip("/") + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {"Accept": _JSON if content_type != "*/*" else "*/*", "User-Agent": "plumbline"}
        if body is not None:
            headers["Content-Type"] = content_type
        data = None if body is None else json.dumps(body).encode()
        self._wait_for_turn()
        try:
            if token := self.access.bearer():
                headers["Authorization"] = f"Bearer {token}"
            request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310
            answer: HTTPResponse = self._open(request, timeout=limit_s)
        except urllib.error.HTTPError as error:
            raise _refusal(error, f"{method} {path}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ApiError(f"{method} {path}: {self.access.server} does not answer: {reason}") from None
        return answer


def _lines(answer: HTTPResponse) -> Iterator[bytes]:
    """Give the lines of a watch; a connection that breaks ends it, as one that the server closes does."""
    while True:
        try:
            line = answer.readline()
        except (OSError, HTTPException):
            return
        if not line.endswith(b"\n"):
            return
        if line.strip():
            yield line


def _object(answer: HTTPResponse, what: str) -> Object:
    try:
        data = json.loads(answer.read() or b"{}")
    except (OSError, HTTPException, ValueError) as error:
        raise ApiError(f"{what}: the answer broke off: {error}") from None
    if not isinstance(data, dict):
        raise ApiError(f"{what}: answered {type(data).__name__}, not an object", status=400)
    return data


def _refusal(error: urllib.error.HTTPError, what: str) -> ApiError:
    """Take the API's own reason out of a refusal."""
    with error:
        text = b""
        with contextlib.suppress(OSError, HTTPException):
            text = error.read(1 << 16)
    try:
        told = json.loads(text)
        message, reason = str(told.get("message", "")), str(told.get("reason", ""))
    except (ValueError, AttributeError):
        message, reason = text.decode(errors="replace").strip()[:300], ""
    try:
        after = float(error.headers.get("Retry-After", 0))
    except ValueError:
        after = 0.0
    return ApiError(
        f"{what}: {error.code} {reason or error.reason}: {message}", status=error.code, reason=reason,
        retry_after_s=min(after, 60),
    )  # fmt: skip


def _tls(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_file, cadata=access.ca_data)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.client_certificate:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as stream:  # ssl reads keys from files only
            stream.write(access.client_certificate)
            stream.flush()
            context.load_cert_chain(stream.name)
    return context


def pem(data: str) -> str:
    """Decode the base64 form that kubeconfigs hold certificates in."""
    return base64.b64decode(data).decode()
