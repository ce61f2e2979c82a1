"""CAST and CALL: how services meet. The only room that knows what carries a message.

Topics and methods (payloads are plain JSON values; the database holds the state, messages hold ids;
handlers are idempotent, since a message may arrive twice or never):

=============  =======================  =====================================================================
topic          method                   payload -> answer
=============  =======================  =====================================================================
conductor      build_servers            server_uuids (one request, in launch order)
conductor      build_failed             server_uuid, build_id, host, generation, kind: claim_lost | host_failed | aborted, reason
conductor      delete_server            server_uuid
scheduler      select_destinations      server_uuids, exclude_hosts -> {"selections": [[SELECTION, ...alternates], ...]}
compute        build_server             server_uuid, build_id, selection: SELECTION
compute        delete_server            server_uuid
compute        stop_server              server_uuid
compute        start_server             server_uuid
compute        reboot_server            server_uuid, hard: bool
compute        attach_interface         server_uuid, port_id or network_id or neither, fixed_ips, tag -> {"port_id": str}
compute        detach_interface         server_uuid, port_id
compute        console_output           server_uuid, length (lines or None) -> {"output": str}
compute        domain_xml               server_uuid -> {"xml": str}
compute        update_resources         {} -> {}      (one inventory pass, and one of the report to Placement, now)
compute        clean_device             address, by_hand: bool -> {"state": running | done}
compute        audit                    {} -> {"findings": [{ledger, subject, text}]}      (where the ledgers differ)
compute        external_event           server_uuid, name, tag, status      (another service tells; kept in the tables before)
compute        scan                     {} -> {"functions": [...]}      (every PCI function of the host)
compute        reload_fleet             check_only: bool -> {"added", "removed", "changed", "left_out": [...]}   (of all hosts of the process)
=============  =======================  =====================================================================

SELECTION is ``Selection.to_message()``. Messages to ``compute`` name the host as ``server``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from jetbridge.model.context import RequestContext

Payload = Mapping[str, Any]
Handler = Callable[[RequestContext, Payload], Payload | None]


class Bus(Protocol):
    """``source`` in every call names the sending service, for the journey of the request."""

    def serve(self, topic: str, methods: Mapping[str, Handler], *, server: str | None = None) -> None:
        """Register the handlers of a service; with ``server``, of that one host's."""
        ...

    def withdraw(self, topic: str, *, server: str | None = None) -> None: ...

    def cast(
        self,
        context: RequestContext,
        topic: str,
        method: str,
        payload: Payload,
        *,
        source: str,
        server: str | None = None,
    ) -> None:
        """Returns at once. Raises ``UnknownDestination`` when nobody serves the topic."""
        ...

    def call(
        self,
        context: RequestContext,
        topic: str,
        method: str,
        payload: Payload,
        *,
        source: str,
        server: str | None = None,
        timeout: float = 60.0,
    ) -> Payload:
        """Waits for the answer. An error of the handler is raised here with its class, when it is
        a ``JetbridgeError``; ``MessageTimeout`` after ``timeout`` seconds."""
        ...

    def stop(self) -> None:
        """Refuse new messages, let running handlers end, return."""
        ...
