"""The fake cluster's API over HTTP: objects, lists, watches, logs; and faults on request."""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.fake.store import KINDS, ConflictError, Key, Store, matches

_PATH = re.compile(
    r"^/(?:api/v1|apis/[\w.-]+/\w+)(?:/namespaces/(?P<namespace>[\w.-]+)(?=/\w))?/(?P<resource>\w+)"
    r"(?:/(?P<name>[\w.:-]+))?(?:/(?P<sub>\w+))?$"
)


@dataclass
class Fault:
    """Answers requests whose method and path with query match with a status (0 closes the connection).

    With `late` the request is served first: only its answer is lost.
    """

    method: str
    path: str
    status: int
    times: int
    message: str = "a fault of the test"
    reason: str = "InternalError"
    late: bool = False


class ApiServer:
    """Serves a store. `log_of(pod)` gives (RFC 3339 time, line) pairs; `delete` knows what deleting a pod means."""

    def __init__(
        self,
        store: Store,
        log_of: Callable[[dict[str, Any]], list[tuple[str, str]]],
        delete: Callable[[Key, int | None], Any],
    ) -> None:
        self.store, self.log_of, self.delete = store, log_of, delete
        self.faults: list[Fault] = []
        self.requests: list[tuple[float, str, str]] = []
        self.denied: set[tuple[str, str]] = set()
        """(verb, resource) that access reviews deny to whoever asks."""
        self.denied_to_launchers: set[tuple[str, str]] = set()
        self.quota_full = False
        self.epoch = 0
        self.watching = self.most_watching = 0
        """Watches that are open now, and the most that ever were."""
        self.down = False
        server = self

        class Handler(_Handler):
            api = server

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        return self.http.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fail(self, method: str, path: str, status: int, *, times: int = 1, **more: Any) -> Fault:
        fault = Fault(method, path, status, times, **more)
        self.faults.append(fault)
        return fault

    def outage(self, down: bool) -> None:
        """Close every connection, open ones too, until called again."""
        self.down = down
        self.close_watches()

    def close_watches(self) -> None:
        with self.store.lock:
            self.epoch += 1
            self.store.changed.notify_all()

    def stop(self) -> None:
        self.outage(True)
        self.http.shutdown()
        self.http.server_close()

    @contextlib.contextmanager
    def watch_counted(self) -> Iterator[None]:
        with self.store.lock:
            self.watching += 1
            self.most_watching = max(self.most_watching, self.watching)
        try:
            yield
        finally:
            with self.store.lock:
                self.watching -= 1

    def fault_for(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method in ("*", method) and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.api.requests.append((time.monotonic(), self.command, self.path))
        fault = None if self.api.down else self.api.fault_for(self.command, self.path)
        if self.api.down or (fault is not None and fault.status == 0 and not fault.late):
            self.close_connection = True
            return
        try:
            if fault is not None and fault.late:
                self.wfile = io.BytesIO()
                self._route(json.loads(body) if body else {})
                self.close_connection = True
            elif fault is not None:
                self._refuse(fault.status, fault.reason, fault.message)
            else:
                self._route(json.loads(body) if body else {})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _route(self, body: dict[str, Any]) -> None:
        split = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(split.query).items()}
        if split.path == "/version":
            self._answer(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
            return
        if split.path.startswith("/apis/authorization.k8s.io/"):
            self._review(body)
            return
        match = _PATH.match(split.path)
        if match is None or match["resource"] not in KINDS:
            self._refuse(404, "NotFound", f"the server could not find {split.path}")
            return
        key = (match["resource"], match["namespace"] or "", match["name"] or "")
        if match["sub"] == "log":
            self._log(key, query)
        elif key[2]:
            self._one(key, body, query)
        elif self.command == "POST":
            self._create(key, body, query)
        elif query.get("watch") in ("true", "True", "1"):
            with self.api.watch_counted():
                self._watch(key, query)
        else:
            self._list(key, query)

    def _review(self, body: dict[str, Any]) -> None:
        asked = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        denied = self.api.denied_to_launchers if "user" in body["spec"] else self.api.denied
        allowed = (asked["verb"], resource) not in denied
        self._answer(201, {**body, "status": {"allowed": allowed}})

    def _one(self, key: Key, body: dict[str, Any], query: dict[str, str]) -> None:
        store = self.api.store
        try:
            if self.command == "GET":
                found = store.get(key)
            elif self.command == "PUT":
                found = store.replace(key, body)
            elif self.command == "PATCH":
                found = store.change(key, lambda there: _merge(there, body))
            else:
                grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
                found = store.get(key)
                self.api.delete(key, None if grace is None else int(grace))
        except ConflictError as error:
            self._refuse(409, "Conflict", str(error))
            return
        if found is None:
            self._refuse(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        else:
            self._answer(200, found)

    def _create(self, key: Key, body: dict[str, Any], query: dict[str, str]) -> None:
        if key[0] == "pods" and self.api.quota_full:
            self._refuse(403, "Forbidden", f'pods "{body["metadata"].get("name")}" is forbidden: exceeded quota: gpus')
            return
        if query.get("dryRun") == "All":
            self._answer(201, body)
            return
        if key[0] == "pods":
            body["status"] = {"phase": "Pending", "conditions": []}
        try:
            self._answer(201, self.api.store.create(key[0], key[1], body))
        except ConflictError as error:
            self._refuse(409, "AlreadyExists", str(error))

    def _list(self, key: Key, query: dict[str, str]) -> None:
        store = self.api.store
        with store.lock:
            items = [b for b in store.see(key[0], key[1]) if self._wanted(b, query)]
            version = str(store.version)
        first = int(query.get("continue") or 0)
        last = first + int(query.get("limit") or len(items) or 1)
        metadata = {"resourceVersion": version, **({"continue": str(last)} if last < len(items) else {})}
        api_version, kind = KINDS[key[0]]
        page = {"apiVersion": api_version, "kind": f"{kind}List", "metadata": metadata, "items": items[first:last]}
        self._answer(200, page)

    def _wanted(self, body: dict[str, Any], query: dict[str, str]) -> bool:
        return matches(body, query.get("labelSelector", ""), query.get("fieldSelector", ""))

    def _watch(self, key: Key, query: dict[str, str]) -> None:
        store, api = self.api.store, self.api
        version, end = int(query.get("resourceVersion") or 0), time.monotonic() + float(query.get("timeoutSeconds", 60))
        epoch = api.epoch
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while api.epoch == epoch and time.monotonic() < end:
            with store.lock:
                if version < store.oldest:
                    gone = {"code": 410, "reason": "Expired", "message": f"too old resource version: {version}"}
                    self._line({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", **gone}})
                    return
                news = store.since(version)
                if not news:
                    store.changed.wait(min(0.5, end - time.monotonic()))
                    continue
            for number, kind, (resource, namespace, _), body in news:
                version = number
                if resource == key[0] and key[1] in ("", namespace) and self._wanted(body, query):
                    self._line({"type": kind, "object": body})

    def _line(self, data: Any) -> None:
        self.wfile.write(json.dumps(data).encode() + b"\n")
        self.wfile.flush()

    def _log(self, key: Key, query: dict[str, str]) -> None:
        pod = self.api.store.get(key)
        if pod is None:
            self._refuse(404, "NotFound", f'pods "{key[2]}" not found')
            return
        follow = query.get("follow") in ("true", "True")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        sent, epoch = 0, self.api.epoch
        while True:
            lines = self.api.log_of(pod)
            for moment, line in lines[sent:]:
                if moment >= query.get("sinceTime", ""):
                    prefix = f"{moment} " if query.get("timestamps") in ("true", "True") else ""
                    self.wfile.write(f"{prefix}{line}\n".encode())
            self.wfile.flush()
            sent = len(lines)
            there = self.api.store.get(key)
            over = there is None or there["status"]["phase"] in ("Succeeded", "Failed")
            if not follow or (over and len(self.api.log_of(pod)) == sent) or self.api.epoch != epoch:
                return
            time.sleep(0.05)

    def _answer(self, status: int, data: Any) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _refuse(self, status: int, reason: str, message: str) -> None:
        data = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason,
                "message": message}  # fmt: skip
        self._answer(status, data)


def _merge(there: dict[str, Any], over: dict[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(there.get(key), dict):
            _merge(there[key], value)
        elif value is None:
            there.pop(key, None)
        else:
            there[key] = value
