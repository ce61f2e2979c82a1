"""Runs a page of the documentation as it stands: `$ command` lines in ```console blocks, and the output below them.
Blocks ```console host are for the lab.

``...`` stands for anything within a line; a line that is ``...`` alone for any number of lines. Runs of blanks
count as one.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

END = "~~end-of-command~~"


@dataclass(frozen=True)
class Command:
    line: int
    text: str
    output: tuple[str, ...]


def commands_of(page: Path, kind: str = "console") -> list[Command]:
    """Those in blocks of exactly this kind, in order."""
    commands: list[Command] = []
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.startswith("```"):
            inside = line == f"```{kind}"
        elif inside and line.startswith("$ "):
            commands.append(Command(number, line[2:], ()))
        elif inside:
            last = commands.pop()
            commands.append(Command(last.line, last.text, (*last.output, line)))
    return commands


def matches(expected: tuple[str, ...], actual: str) -> bool:
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            words = re.sub(r"\s+", " ", line.strip())
            pattern += r"\s*" + ".*".join(re.escape(part) for part in words.split("...")) + r"\s*?\n"
    text = "".join(re.sub(r"[ \t]+", " ", line).strip() + "\n" for line in actual.splitlines() if line.strip())
    return re.fullmatch(pattern.replace(r"\ ", " "), text) is not None


class Shell:
    """One bash for the whole page, so that variables last."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho '{END}'\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.rstrip("\n").endswith(END):
                lines.append(line.rstrip("\n").removesuffix(END))
                return "\n".join(lines)
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"bash ended during: {command}")

    def close(self) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait(timeout=10)
