"""Builds the kernel modules that Debian doesn't: the kernel's own sample of mediated devices, and what ``lab/modules`` has."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from lab.cache import LAB, LabError, built, fingerprint, run
from lab.packages import KernelPackage, depends, fetch

SOURCES = LAB / "modules"
SAMPLE = "samples/vfio-mdev/mtty.c"
MODULES = ("mtty", "labvgpu")


def extra_modules(kernel: KernelPackage) -> list[Path]:
    """The files of ``MODULES`` for this kernel, built when their sources or the kernel changed."""
    inputs = fingerprint([*SOURCES.iterdir(), Path(__file__)], kernel.path.name)
    folder = built("modules", inputs, lambda folder: _build(folder, kernel))
    return [folder / f"{name}.ko" for name in MODULES]


def _build(folder: Path, kernel: KernelPackage) -> None:
    headers = _unpack_headers(folder, kernel)
    sources = folder / "sources"
    shutil.copytree(SOURCES, sources)
    (sources / Path(SAMPLE).name).write_bytes(_sample(kernel))
    run(["make", "-s", "-C", headers, f"M={sources}", "modules"])
    for name in MODULES:
        run(["strip", "--strip-debug", "-o", folder / f"{name}.ko", sources / f"{name}.ko"])
    for path in (folder / "headers", sources):
        shutil.rmtree(path)


def _unpack_headers(folder: Path, kernel: KernelPackage) -> Path:
    """The folder to build in. Unpacked instead of installed, so that they are of L1's kernel and not of this machine's."""
    root = folder / "headers"
    package = fetch(f"linux-headers-{kernel.version}", kernel.release)
    needed = depends(package, r"linux-headers-\S+|linux-kbuild-\S+")
    for file in (package, *(fetch(name, kernel.release) for name in needed)):
        run(["dpkg-deb", "-x", file, root])
    headers = root / f"usr/src/linux-headers-{kernel.version}"
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace(" /usr/src/", f" {root}/usr/src/"))
    return headers


def _sample(kernel: KernelPackage) -> bytes:
    """One file out of an archive in an archive of 1.4 GB, which is never unpacked."""
    series = ".".join(kernel.release.split(".")[:2])
    name = f"linux-source-{series}"
    package = fetch(name, kernel.release)
    pipe = f'set -o pipefail; dpkg-deb --fsys-tarfile "$PACKAGE" | tar xO ./usr/src/{name}.tar.xz | xz -dcT0 | tar xO {name}/{SAMPLE}'
    done = subprocess.run(
        ["bash", "-c", pipe], env={**os.environ, "PACKAGE": str(package)}, capture_output=True, check=False
    )
    if done.returncode or not done.stdout:
        raise LabError(f"{package.name} has no {SAMPLE}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
