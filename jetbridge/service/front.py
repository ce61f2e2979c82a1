"""The HTTP front doors of a process: only those that have some need what serves them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jetbridge.api.app import create_app
from jetbridge.api.services import ApiServices
from jetbridge.pci.request import AliasTable
from jetbridge.service.http import HttpServer
from jetbridge.service.process import Process, new_id
from jetbridge.service.statedir import write_clouds

logger = logging.getLogger(__name__)


def open_front(
    process: Process,
    server: HttpServer,
    listen: str,
    aliases: AliasTable,
    on_stop: Callable[[Callable[[], None]], object],
) -> str:
    """Serve from now on; answers the base URL. ``on_stop`` is told what ends it: before everything else of the process, since no request
    should meet a service half gone."""
    app = create_app(
        ApiServices(
            database=process.database,
            bus=process.bus,
            settings=process.settings,
            aliases=aliases,
            images=process.images,
            new_id=new_id,
            listen=listen,
            seams=process.seams,
            accelerators=process.accelerators,
            accelerator_client=process.bindings.client,
            neutron=process.neutron,
            placement=getattr(process, "placement", None),  # an API on its own may have none in its options
            settle_spans=process.tracing.flush,
        )
    )
    on_stop(server.stop)
    server.start(app)
    write_clouds(
        process.state.clouds,
        server.base_url,
        process.settings.auth_strategy,
        process.embedded.url if process.embedded else process.settings.placement_endpoint_override,
        process.settings.neutron_endpoint_override,
        None if process.accelerators else process.settings.cyborg_endpoint_override,
    )
    logger.info(
        "Serving on %s, state in %s, database %s", server.base_url, process.state.path, process.database.shown_url
    )
    return server.base_url
