"""Who waits on a host for what another service tells of a server. What was told is in the tables; this only wakes."""

from __future__ import annotations

import threading


class ExternalEvents:
    def __init__(self) -> None:
        self._told = threading.Condition()
        self._count: dict[str, int] = {}

    def tell(self, server_uuid: str) -> None:
        with self._told:
            if server_uuid in self._count:
                self._count[server_uuid] += 1
                self._told.notify_all()

    def expect(self, server_uuid: str) -> int:
        """What is told from now on counts."""
        with self._told:
            return self._count.setdefault(server_uuid, 0)

    def wait(self, server_uuid: str, seen: int, seconds: float) -> int:
        """Until there was more than ``seen``, at most so long; how many there were by now."""
        with self._told:
            self._told.wait_for(lambda: self._count.get(server_uuid, 0) > seen, seconds)
            return self._count.get(server_uuid, 0)

    def forget(self, server_uuid: str) -> None:
        with self._told:
            self._count.pop(server_uuid, None)
