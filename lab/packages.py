"""Debian's packages of which L1's kernel and its own modules are made: downloaded once, unpacked, never installed."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.cache import CACHE, LabError, run

DOWNLOADS = CACHE / "packages"
_REFRESH = "If the package lists are old, `apt-get update` helps; `rm -r .lab/packages` begins with the newest kernel"


@dataclass(frozen=True)
class KernelPackage:
    """``version`` is the kernel's (``uname -r``), ``release`` the package's."""

    path: Path
    version: str
    release: str


def kernel_package() -> KernelPackage:
    """The kernel that is there already, else the newest: a newer one alone is no reason to build anything anew."""
    have = sorted(DOWNLOADS.glob("linux-image-*.deb"))
    if not have:
        listed = run(["apt-cache", "depends", "linux-image-amd64"]).decode()
        match = re.search(r"Depends: (linux-image-\d\S+)", listed)
        if match is None:
            raise LabError("apt-cache knows no linux-image-amd64: run `apt-get update`")
        have = [_download(match[1])]
    name, release, _ = have[-1].name.split("_")
    return KernelPackage(have[-1], name.removeprefix("linux-image-"), release.replace("%3a", ":"))


def fetch(name: str, release: str) -> Path:
    """The package's file in exactly this release, which has to be that of the kernel."""
    have = sorted(DOWNLOADS.glob(f"{name}_{release.replace(':', '%3a')}_*.deb"))
    return have[-1] if have else _download(f"{name}={release}")


def depends(package: Path, pattern: str) -> list[str]:
    """Names of packages that this one needs and that match."""
    field = run(["dpkg-deb", "-f", package, "Depends"]).decode()
    return [name for name in (part.split()[0] for part in field.split(",")) if re.fullmatch(pattern, name)]


def _download(wanted: str) -> Path:
    # Apart, so that half a file is never taken for a whole one.
    fresh = CACHE / "packages.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        run(["apt-get", "download", wanted], cwd=fresh)
    except LabError as error:
        # Mirrors forget superseded versions: what the package lists name may be gone.
        raise LabError(f"{error}. {_REFRESH}") from error
    (file,) = fresh.glob("*.deb")
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    return file.rename(DOWNLOADS / file.name)
