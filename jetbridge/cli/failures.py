"""How commands end when they can't do what they were asked."""

from __future__ import annotations

FAILURE = 1
USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4


class CliError(Exception):
    """Ends the command: ``message`` goes to stderr as ``error: ...``, ``code`` is the exit code."""

    def __init__(self, message: str, code: int = FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
