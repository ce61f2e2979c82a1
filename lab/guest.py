"""Builds the guest: a multiboot kernel of a few KiB that reports its PCI functions on the serial console."""

from __future__ import annotations

from pathlib import Path

from lab.cache import LAB, built, fingerprint, run

SOURCES = LAB / "guest"
FLAGS = (
    *("-m32", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"),
    *("-ffreestanding", "-nostdlib", "-static", "-fno-pic", "-fno-pie", "-fno-stack-protector"),
    *("-fno-asynchronous-unwind-tables", "-mno-sse", "-mno-mmx"),
    *("-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,--no-warn-rwx-segments"),
)


def guest_kernel() -> Path:
    """The kernel file, built when its sources changed."""
    sources = sorted(SOURCES.glob("*.c"))
    script = SOURCES / "guest.ld"

    def build(folder: Path) -> None:
        run(["gcc", *FLAGS, "-T", script, "-o", folder / "guest.elf", *sources])

    inputs = fingerprint([*sources, SOURCES / "guest.h", script], " ".join(FLAGS))
    return built("guest", inputs, build) / "guest.elf"
