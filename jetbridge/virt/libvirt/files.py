"""sysfs of this machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from jetbridge.errors import HypervisorError

logger = logging.getLogger(__name__)


class LocalHostFiles:
    """``HostFiles`` under ``root``: / on a host, a folder in tests."""

    def __init__(self, root: Path | str = Path("/"), host: str = "this machine") -> None:
        self._root = Path(root)
        self._host = host

    def _path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def read_text(self, path: str) -> str | None:
        try:
            return self._path(path).read_text(errors="replace")
        except OSError:  # gone, no permission, or the device refuses (reading of an absent PF's file gives EIO)
            return None

    def list_dir(self, path: str) -> Sequence[str]:
        try:
            return tuple(sorted(entry.name for entry in self._path(path).iterdir()))
        except OSError:
            return ()

    def read_link(self, path: str) -> str | None:
        try:
            return str(self._path(path).readlink())
        except OSError:
            return None

    def write_text(self, path: str, text: str) -> None:
        # Said before it is done: if the kernel never returns from this write, the log shows which one it was.
        logger.info("host %s: writing %r to %s", self._host, text, path)
        try:
            # Not created: a name that sysfs doesn't have is an error, never a new file.
            with self._path(path).open("r+b", buffering=0) as file:
                file.write(text.encode())
        except OSError as error:
            raise HypervisorError(
                operation=f"writing {text!r} to {path}", host=self._host, reason=error.strerror or str(error)
            ) from None
