"""What a guest of the lab says on its serial console."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

READY = "guest: ready"
_FUNCTION = re.compile(r"^pci (\S+) (\w{4}:\w{4}) class (\w{6})", re.MULTILINE)
_DEVICE = re.compile(r"^device (\S+) (\w+) (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Proof:
    """One device that the guest put to work. ``facts`` are what it answered; ``dma``: what it was told to write arrived in the
    guest's memory, None for a device without DMA."""

    kind: str
    ids: str
    facts: Mapping[str, str]
    dma: bool | None

    def __str__(self) -> str:
        told = " ".join(f"{name} {value}" for name, value in self.facts.items())
        dma = {True: " dma ok", False: " dma FAILED", None: ""}[self.dma]
        return f"{self.kind} {self.ids} {told}{dma}"


@dataclass(frozen=True)
class Report:
    """``functions``: ids by the guest's own address."""

    functions: Mapping[str, str]
    proofs: tuple[Proof, ...]

    def of(self, kind: str) -> tuple[Proof, ...]:
        return tuple(proof for proof in self.proofs if proof.kind == kind)


def read_report(console: str) -> Report:
    """The last report in the text: a guest that is started again begins anew."""
    text = console.replace("\r", "").rpartition("guest: up")[2]
    functions = {address: ids for address, ids, _ in _FUNCTION.findall(text)}
    proofs = []
    for address, kind, words in _DEVICE.findall(text):
        fields = words.split()
        facts = dict(zip(fields[::2], fields[1::2], strict=True))
        dma = facts.pop("dma", None)
        proofs.append(Proof(kind, functions[address], facts, None if dma is None else dma == "ok"))
    return Report(functions, tuple(proofs))
