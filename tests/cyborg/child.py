"""The released Cyborg in one process: API, conductor and what its fake driver finds. Run by the python of an environment that has
openstack-cyborg (``make test-cyborg``), never imported: ``python child.py FOLDER COMPUTE_URL``.

Cyborg 17 has no option for a mode without Keystone: its API reads who asks from the headers that keystonemiddleware sets, so the small layer
below sets them instead, from ``X-Test-Project`` and ``X-Test-Roles``. Messages go over oslo.messaging's in-memory transport. The agent isn't
started, since it wants a provider of its host in a Placement: what its driver would report is written as its conductor writes it.
"""

from __future__ import annotations

import json
import sys
import threading
import uuid
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

HOST = "gpu1"
SERVICES = str(uuid.UUID(int=1))
"""The project of who doesn't say which."""


def configure(folder: Path, compute_url: str, placement_url: str) -> None:
    from cyborg.common import service as cyborg_service

    conf = folder / "cyborg.conf"
    conf.write_text(
        f"""[DEFAULT]
transport_url = fake://
host = {HOST}
state_path = {folder}
[database]
connection = sqlite:///{folder}/cyborg.sqlite3
[oslo_concurrency]
lock_path = {folder}
[placement]
auth_type = none
endpoint_override = {placement_url}
[nova]
auth_type = none
endpoint_override = {compute_url}
"""
    )
    cyborg_service.prepare_service(["cyborg", "--config-file", str(conf)])


def make_tables() -> None:
    """From Cyborg's models: its migrations change columns in ways that SQLite doesn't take."""
    from cyborg.db.sqlalchemy import models
    from oslo_db.sqlalchemy import enginefacade

    models.Base.metadata.create_all(enginefacade.writer.get_engine())


def serve_conductor() -> Any:
    import oslo_messaging
    from cyborg.common import constants, rpc
    from cyborg.conductor.manager import ConductorManager
    from cyborg.objects import base

    target = oslo_messaging.Target(topic=constants.CONDUCTOR_TOPIC, server=HOST)
    server = rpc.get_server(
        target, [ConductorManager(constants.CONDUCTOR_TOPIC, HOST)], serializer=base.CyborgObjectSerializer()
    )
    server.start()
    return server


def fake_devices() -> list[str]:
    """What the fake driver finds, in the tables; the UUIDs of the providers that would stand for it."""
    from cyborg import objects
    from cyborg.accelerator.drivers.fake import FakeDriver
    from cyborg.context import RequestContext

    context = RequestContext(user_id="agent", project_id=SERVICES, is_admin=True, roles=["admin"])
    for device in FakeDriver().discover():
        device.create(context, HOST)
    providers = []
    for deployable in objects.Deployable.list(context):
        deployable.rp_uuid = str(uuid.uuid4())
        deployable.save(context)
        providers.append(deployable.rp_uuid)
    return providers


def application() -> Any:
    from cyborg.api.app import setup_app

    inner = setup_app()

    def outer(environ: dict[str, Any], start_response: Any) -> Any:
        roles = environ.get("HTTP_X_TEST_ROLES", "admin,member,reader,service")
        environ["HTTP_X_ROLES"] = roles
        environ["HTTP_X_PROJECT_ID"] = environ.get("HTTP_X_TEST_PROJECT", SERVICES)
        environ["HTTP_X_USER_ID"] = "user"
        environ["HTTP_X_IDENTITY_STATUS"] = "Confirmed"
        if "service" in roles.split(","):
            environ["HTTP_X_SERVICE_ROLES"] = "service"
            environ["HTTP_X_SERVICE_IDENTITY_STATUS"] = "Confirmed"
        return inner(environ, start_response)

    return outer


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class Doors:
    """Cyborg's API, once there is one; and a Placement that only says that it is one, for which Cyborg's conductor asks when it starts."""

    cyborg: Any = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if not environ["PATH_INFO"].startswith("/placement"):
            return self.cyborg(environ, start_response)
        links = [{"rel": "self", "href": ""}]
        version = {"id": "v1.0", "status": "CURRENT", "min_version": "1.0", "max_version": "1.39", "links": links}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"versions": [version]}).encode()]


def main() -> None:
    folder, compute_url = Path(sys.argv[1]), sys.argv[2]
    doors = Doors()
    server = make_server("127.0.0.1", 0, doors, server_class=Server, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configure(folder, compute_url, f"http://127.0.0.1:{server.server_port}/placement")
    make_tables()
    conductor = serve_conductor()
    providers = fake_devices()
    doors.cyborg = application()
    print(json.dumps({"port": server.server_port, "providers": providers}), flush=True)
    sys.stdin.read()  # until whoever started it lets go
    server.shutdown()
    conductor.stop()


if __name__ == "__main__":
    main()
