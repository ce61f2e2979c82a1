"""What a simulated hypervisor remembers: one JSON file per host, replaced whole, and a journal that only grows."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jetbridge.errors import HypervisorError

logger = logging.getLogger(__name__)


@dataclass
class Domain:
    """``xml`` is the definition (None: transient, gone when it stops), ``live_xml`` that of the running domain.

    ``held`` are PCI addresses, ``mdevs`` uuids; ``restore`` are the drivers that functions had before the domain took
    them, only of those whose driver was changed for it."""

    name: str
    uuid: str
    xml: str | None
    state: str = "shutoff"
    live_xml: str | None = None
    id: int | None = None
    held: list[str] = field(default_factory=list)
    mdevs: list[str] = field(default_factory=list)
    restore: dict[str, str | None] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        return self.state in {"running", "paused"}


@dataclass
class MdevRecord:
    name: str
    uuid: str
    type: str
    parent: str
    document: str
    active: bool = True
    autostart: bool = True


@dataclass
class Memory:
    """``drivers``: functions whose driver isn't the one at boot. ``failures``: by call, the failure being played and how
    often it was. ``files``: sysfs attributes that were written, by path."""

    domains: dict[str, Domain] = field(default_factory=dict)
    mdevs: dict[str, MdevRecord] = field(default_factory=dict)
    drivers: dict[str, str | None] = field(default_factory=dict)
    failures: dict[str, list[Any]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    last_id: int = 0
    last_group: int = 0


_SHAPE = {"domains": dict, "mdevs": dict, "drivers": dict, "failures": dict, "files": dict, "last_id": int}


class Store:
    """The folder of one host, of which one thread at a time saves. Nothing is made before something is written."""

    def __init__(self, host: str, folder: Path) -> None:
        self.folder = folder
        self._host = host

    def load(self) -> Memory:
        path = self.folder / "state.json"
        try:
            values = json.loads(path.read_text())
            for name, kind in _SHAPE.items():
                if not isinstance(values[name], kind):
                    raise TypeError(f"{name} is {values[name]!r}")
            return Memory(
                domains={name: Domain(**value) for name, value in values["domains"].items()},
                mdevs={name: MdevRecord(**value) for name, value in values["mdevs"].items()},
                drivers=values["drivers"],
                failures=values["failures"],
                files=values["files"],
                last_id=values["last_id"],
                last_group=values.get("last_group", len(values["mdevs"])),
            )
        except FileNotFoundError:
            return Memory()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"its state file {path} can't be read ({error}); restore it, or remove the folder to start anew"
            raise HypervisorError(operation="open", host=self._host, reason=reason) from error

    def save(self, memory: Memory) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Always the same name: what a process that is killed leaves there, the next one writes over.
            temporary = self.folder / ".state.json.new"
            with temporary.open("w") as stream:
                json.dump(asdict(memory), stream, indent=1, sort_keys=True)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, self.folder / "state.json")
        except OSError as error:
            raise HypervisorError(operation="save", host=self._host, reason=str(error)) from error

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Appends one line with the time (seconds since the epoch)."""
        line = json.dumps({"at": round(time.time(), 6), **entry}, separators=(",", ":")) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # One write with O_APPEND: lines of several threads don't mix.
            descriptor = os.open(self.folder / "journal.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise HypervisorError(operation="journal", host=self._host, reason=str(error)) from error
