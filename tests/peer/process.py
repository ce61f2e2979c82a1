"""The peer: Nova's released package in a process and an environment of its own, asked in JSON lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".peer" / "bin" / "python"
SIDE = Path(__file__).with_name("nova_side.py")


class PeerRaised(Exception):
    """What the peer raised: the class's name, and its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Peer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, question: str, **facts: Any) -> Any:
        """Raises ``PeerRaised`` with what the question raised there."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"ask": question, **facts}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with {self._process.wait()}; see what it printed")
        answer = json.loads(line)
        if "raised" in answer:
            raise PeerRaised(answer["raised"], answer["text"])
        return answer["answer"]


@contextmanager
def peer() -> Iterator[Peer]:
    """Needs ``make setup-peer``."""
    if not PYTHON.exists():
        raise RuntimeError(f"{PYTHON} is missing: run make setup-peer")
    process = subprocess.Popen([PYTHON, SIDE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Peer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
