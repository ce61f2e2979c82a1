"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass

ADMIN_ID = "a0000000000000000000000000000001"
"""Fixed user and project id of the one user there is without authentication (32 hexadecimal digits as Keystone's)."""


@dataclass(frozen=True)
class RequestContext:
    """Passed through every layer and every message. ``user`` and ``project`` are ids."""

    user: str
    project: str
    roles: frozenset[str]
    request_id: str

    @property
    def is_admin(self) -> bool:
        return "admin" in self.roles

    def to_message(self) -> dict[str, object]:
        return {
            "user": self.user,
            "project": self.project,
            "roles": sorted(self.roles),
            "request_id": self.request_id,
        }

    @classmethod
    def from_message(cls, message: dict[str, object]) -> RequestContext:
        roles = message["roles"]
        assert isinstance(roles, list)
        return cls(
            user=str(message["user"]),
            project=str(message["project"]),
            roles=frozenset(str(role) for role in roles),
            request_id=str(message["request_id"]),
        )
