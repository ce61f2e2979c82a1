"""Where an option stands, for errors of a content that is only understood long after its file was read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jetbridge.config.settings import Settings
from jetbridge.errors import JetbridgeError


@contextmanager
def naming_origin(settings: Settings, group: str, name: str) -> Iterator[None]:
    """An error raised inside says too which files ``[group]name`` stands in; of an option that no file has there is nothing to add."""
    try:
        yield
    except JetbridgeError as error:
        origin = settings.origins.get((group, name))
        if origin is None:
            raise
        raise type(error)(
            f"{error.message.rstrip('.')}{'' if error.message.endswith('?') else '.'} [{group}]{name} stands in {origin}"
        ) from error
