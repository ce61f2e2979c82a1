"""An accelerator service that does as a test says: what Cyborg may answer and the embedded service never does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jetbridge.accelerator.client import AcceleratorClient
from jetbridge.accelerator.session import external_adapter
from jetbridge.config.settings import Settings

Answer = tuple[int, Any]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]


@dataclass
class FakeCyborg:
    """``answer`` decides; ``requests`` are what came."""

    url: str
    answer: Callable[[Request], Answer] = lambda request: (200, {})
    requests: list[Request] = field(default_factory=list)

    @property
    def client(self) -> AcceleratorClient:
        return AcceleratorClient(external_adapter(Settings(cyborg_endpoint_override=self.url)))


@contextmanager
def fake_cyborg() -> Iterator[FakeCyborg]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = parts.path.removeprefix("/v2")
            request = Request(self.command, path, dict(parse_qsl(parts.query)), body, dict(self.headers))
            fake.requests.append(request)
            status, content = fake.answer(request)
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake = FakeCyborg(f"http://127.0.0.1:{server.server_port}/v2")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def arq(uuid: str, server: str, state: str = "Bound", **more: Any) -> dict[str, Any]:
    """As the list call answers one."""
    return {
        "uuid": uuid,
        "state": state,
        "device_profile_name": "infer",
        "device_profile_group_id": 0,
        "hostname": "h1",
        "device_rp_uuid": "rp",
        "instance_uuid": server,
        "attach_handle_type": "PCI" if state == "Bound" else "",
        "attach_handle_info": {"domain": "0000", "bus": "1", "device": "0", "function": "0"}
        if state == "Bound"
        else {},
        **more,
    }
