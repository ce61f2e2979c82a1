"""What only admins see: hosts, their devices, and what the hypervisor holds."""

from __future__ import annotations

from jetbridge.api.services import ApiServices
from jetbridge.db import servers as rows
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import Conflict, Forbidden, ServerNotFound
from jetbridge.model.context import RequestContext
from jetbridge.model.server import Server

PREFIX = "/jetbridge/v1"


def require_admin(context: RequestContext, what: str) -> None:
    """Raises ``Forbidden``."""
    if not context.is_admin:
        raise Forbidden(reason=f"{what} needs the role admin")


def find_server(services: ApiServices, context: RequestContext, key: str, *, deleted_too: bool = False) -> Server:
    """A server the caller may see, by id or by exact name. Raises ``ServerNotFound``, and ``Conflict`` for an ambiguous name."""
    project = None if context.is_admin else context.project
    with services.database.read() as conn:
        try:
            return rows.get(conn, key, project_id=project, deleted_too=deleted_too)
        except ServerNotFound:
            named = rows.by_name(conn, key, project_id=project)
        if not named and deleted_too:
            gone = rows.find(conn, ServerFilter(project_id=project, name=key, deleted=True))
            named = tuple(server for server in gone if server.display_name == key)[:1]
    if not named:
        raise ServerNotFound(server=key)
    if len(named) > 1:
        ids = ", ".join(server.uuid for server in named)
        raise Conflict(f"{len(named)} servers are named {key!r}: use one of the ids {ids}")
    return named[0]
