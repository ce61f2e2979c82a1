"""The released Placement as a WSGI application on an SQLite file. Imported only by the process that serves it.

It is configured by values alone: no placement.conf and no OS_PLACEMENT_* variable of the machine has a say.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oslo_config import cfg
from placement import conf as placement_conf
from placement import db_api, deploy
from placement.db.sqlalchemy import migration

from jetbridge.db.sqlite_file import prepare, tune_engine

logger = logging.getLogger(__name__)

Application = Callable[..., Any]

CONFLICT_RETRIES = 1
"""With Placement's own default of 10 it over-allocates: a write that lost against another one is repeated without looking at what is
left. With 1 the loser is told, and our client asks again with fresh eyes."""


def load_application(database: Path) -> Application:
    """Brings the file's schema up to date, made in one go by Placement's own models when the file is new."""
    for name in [name for name in os.environ if name.startswith("OS_PLACEMENT_")]:
        del os.environ[name]
    url = f"sqlite:///{database}"
    config = cfg.ConfigOpts()
    placement_conf.register_opts(config)
    config.set_default("connection", url, group="placement_database")
    config([], project="placement", default_config_files=[], default_config_dirs=[])
    config.set_override("auth_strategy", "noauth2", group="api")
    config.set_override("allocation_conflict_retry_count", CONFLICT_RETRIES, group="placement")
    fresh = prepare(database)
    db_api.configure(config)
    engine = db_api.get_placement_engine()
    tune_engine(engine)
    if fresh:
        migration.create_schema(engine)
        migration.stamp("head")
    else:
        migration.upgrade("head")
    application: Application = deploy.loadapp(config)
    return application
