"""What the child that serves the embedded Placement is told by its parent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ChildConfig:
    """``database``: the SQLite file; ``listen``: the address that the socket is bound to; ``own_token``: by which Jetbridge's own services
    are known."""

    database: str
    listen: str
    auth_strategy: str
    http_basic_auth_user_file: str | None
    own_token: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ChildConfig:
        return cls(**json.loads(text))
