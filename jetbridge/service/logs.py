"""Where log lines go and what they look like."""

from __future__ import annotations

import contextlib
import logging
import sys
from io import TextIOWrapper
from pathlib import Path

from jetbridge.service.statedir import owner_only

FORMAT = "%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(shown_name)s %(who)s%(message)s"
SHOWN_NAMES = {"uvicorn.error": "uvicorn"}
"""The HTTP server says all it has to say by that name, good news too."""
DATES = "%Y-%m-%d %H:%M:%S"


class LineFormatter(logging.Formatter):
    """``TIME PID LEVEL LOGGER [REQUEST-ID] [instance: UUID] MESSAGE``; the bracketed parts where the line has them
    (``extra={"request_id": ..., "server": ...}``)."""

    def __init__(self) -> None:
        super().__init__(FORMAT, DATES)

    def format(self, record: logging.LogRecord) -> str:
        who = ""
        if request_id := getattr(record, "request_id", None):
            who += f"[{request_id}] "
        if server := getattr(record, "server", None):
            who += f"[instance: {server}] "
        record.who = who
        record.shown_name = SHOWN_NAMES.get(record.name, record.name)
        return super().format(record)


class LogFile(logging.FileHandler):
    """A log that can't be written (its disk is full) says so once on the terminal, and never in the way of the work."""

    _complained = False

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(
            open(self.baseFilename, "ab", opener=owner_only), encoding=self.encoding, errors=self.errors
        )

    def handleError(self, record: logging.LogRecord) -> None:
        if not self._complained:
            self._complained = True
            print(f"warning: {self.baseFilename} can't be written: {sys.exc_info()[1]}", file=sys.stderr)


def log_to_file(path: Path, level: int = logging.INFO) -> logging.Handler:
    """Append the product's log lines to ``path``. Returns the handler, for ``stop_logging``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = LogFile(path, encoding="utf-8", delay=False)
    handler.setFormatter(LineFormatter())
    handler.setLevel(level)
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        if logger.getEffectiveLevel() > level or logger.level == logging.NOTSET:
            logger.setLevel(level)
    return handler


def stop_logging(handler: logging.Handler) -> None:
    for name in LOGGERS:
        logging.getLogger(name).removeHandler(handler)
    with contextlib.suppress(OSError):  # its last lines find no room: the process ends all the same
        handler.close()


LOGGERS = ("jetbridge", "uvicorn.error", "oslo_messaging", "opentelemetry")
"""Whose lines are kept: ours, and the troubles of the HTTP server, of the message bus, and of a collector of traces."""
