"""Who may do what: one table of rules. Names are those operators know from policy files."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from jetbridge.errors import Forbidden, NotFound
from jetbridge.model.context import RequestContext


class Who(enum.Enum):
    ANYONE = "anyone"  # who is authenticated
    OWNER = "owner"  # members of the project it belongs to, and admins
    ADMIN = "admin"
    SERVICE = "service"  # other services, and admins


READING = frozenset({"GET", "HEAD"})
WRITERS = frozenset({"member", "admin", "service"})

_COMPUTE = "os_compute_api"

RULES: Mapping[str, Who] = {
    f"{_COMPUTE}:servers:index:get_all_tenants": Who.ADMIN,
    f"{_COMPUTE}:servers:allow_all_filters": Who.ADMIN,
    f"{_COMPUTE}:servers:create:forced_host": Who.ADMIN,
    f"{_COMPUTE}:compute:servers:create:requested_destination": Who.ADMIN,
    f"{_COMPUTE}:servers:show:host_status": Who.ADMIN,
    f"{_COMPUTE}:servers:show:fault_details": Who.ADMIN,
    f"{_COMPUTE}:os-extended-server-attributes": Who.ADMIN,
    f"{_COMPUTE}:os-lock-server:unlock:unlock_override": Who.ADMIN,
    f"{_COMPUTE}:os-instance-actions:events:details": Who.ADMIN,
    f"{_COMPUTE}:os-flavor-manage:create": Who.ADMIN,
    f"{_COMPUTE}:os-flavor-manage:update": Who.ADMIN,
    f"{_COMPUTE}:os-flavor-manage:delete": Who.ADMIN,
    f"{_COMPUTE}:os-flavor-extra-specs:create": Who.ADMIN,
    f"{_COMPUTE}:os-flavor-extra-specs:update": Who.ADMIN,
    f"{_COMPUTE}:os-flavor-extra-specs:delete": Who.ADMIN,
    f"{_COMPUTE}:os-flavor-extra-specs:show": Who.ANYONE,
    f"{_COMPUTE}:os-flavor-access": Who.ADMIN,
    f"{_COMPUTE}:os-hypervisors": Who.ADMIN,
    f"{_COMPUTE}:os-services": Who.ADMIN,
    f"{_COMPUTE}:os-availability-zone:detail": Who.ADMIN,
    f"{_COMPUTE}:os-aggregates": Who.ADMIN,
    f"{_COMPUTE}:os-keypairs:others": Who.ADMIN,
    f"{_COMPUTE}:os-quota-sets:others": Who.ADMIN,
    f"{_COMPUTE}:os-server-external-events:create": Who.SERVICE,
    "create_network": Who.ADMIN,
    "update_network": Who.ADMIN,
    "delete_network": Who.ADMIN,
    "create_port:tenant_id": Who.ADMIN,
    "create_port:binding:profile": Who.ADMIN,
}


def allowed(context: RequestContext, rule: str, project: str | None = None) -> bool:
    """Whether ``rule`` grants it; ``project``: of the object, for rules of its owners."""
    who = RULES[rule]
    return (
        who is Who.ANYONE
        or context.is_admin
        or (who is Who.SERVICE and "service" in context.roles)
        or (who is Who.OWNER and project is not None and project == context.project)
    )


def require(context: RequestContext, rule: str, project: str | None = None) -> None:
    """Raises ``Forbidden`` naming the rule."""
    if not allowed(context, rule, project):
        raise Forbidden(f"Policy doesn't allow {rule} to be performed: it needs the role {RULES[rule].value}.")


def require_method(context: RequestContext, method: str) -> None:
    """Raises ``Forbidden`` where somebody who may only look would change something."""
    if method not in READING and not context.roles & WRITERS:
        raise Forbidden(
            f"Policy doesn't allow {method}: the roles {', '.join(sorted(context.roles))} may only look, it needs the role"
            " member."
        )


def own(context: RequestContext, project: str, noun: str, key: str) -> None:
    """Raises ``NotFound``, as if it didn't exist, where an object is another project's."""
    if not context.is_admin and project != context.project:
        raise NotFound(noun=noun, key=key)
