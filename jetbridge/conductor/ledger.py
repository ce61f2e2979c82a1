"""Taking allocations back in Placement from servers that have no right to them any more.

A server is noted before anything is allocated for it, with its build, and forgotten once its allocation is gone: so whatever dies in
between, the next pass finds it. Only what was noted is looked at: other services' consumers are theirs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from jetbridge.db import consumers
from jetbridge.db.engine import Database
from jetbridge.errors import JetbridgeError
from jetbridge.model.context import RequestContext
from jetbridge.placement.client import PlacementClient

logger = logging.getLogger(__name__)

SOURCE = "conductor"


@dataclass(frozen=True)
class Ledger:
    """``placement`` None: nothing is ever allocated (tests of other things)."""

    database: Database
    placement: PlacementClient | None

    def give_back(self, context: RequestContext | None, server_uuid: str, *, by_its_build: bool = False) -> bool:
        """The server has no allocation any more. False: Placement doesn't say so; a later pass asks again.

        It stays noted while it is built, deleted or not: its scheduler may be about to write one, and whoever should take that back
        can die. ``by_its_build``: the caller is who builds it, and writes nothing more."""
        if self.placement is not None:
            try:
                self.placement.by(SOURCE, context, server_uuid).delete_allocations(server_uuid)
            except JetbridgeError as error:
                logger.warning(
                    "The allocation of server %s could not be taken back, which is tried again: %s",
                    server_uuid,
                    error,
                    extra={"request_id": context.request_id if context else None, "server": server_uuid},
                )
                return False
        forget = consumers.forget if by_its_build else consumers.forget_unless_building
        self.database.write(lambda conn: forget(conn, server_uuid))
        return True

    def give_back_abandoned(self) -> int:
        """All of those who have no right to theirs; how many that were. Ends at the first for whom Placement doesn't answer."""
        with self.database.read() as conn:
            found = consumers.abandoned(conn)
        for number, server_uuid in enumerate(found):
            if not self.give_back(None, server_uuid):
                return number
        return len(found)
