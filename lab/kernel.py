"""L1's kernel: Debian's, unpacked (not installed), with an initramfs of the modules L1 needs."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.cache import LAB, LabError, built, fingerprint, run
from lab.oot import extra_modules
from lab.packages import KernelPackage, kernel_package

BOOT_MODULES = ("virtio_pci", "virtio_pmem", "nd_pmem", "ext4", "9pnet_virtio", "9p", "overlay")
"""Loaded by the initramfs, before L1 has a root."""

MODULES = (
    *BOOT_MODULES,
    *("virtio_console", "virtio_net", "virtio_rng"),
    *("vfio", "vfio_pci", "vfio_iommu_type1", "mdev"),
    *("e1000", "e1000e", "nvme"),
    *("tun", "bridge", "loop"),
)
"""What L1 can load: the cloud flavour of Debian's kernel lacks some of them, so the generic one is taken."""


@dataclass(frozen=True)
class Kernel:
    version: str
    image: Path
    initrd: Path


def l1_kernel() -> Kernel:
    """Built when the module lists or L1's own files changed; a newer package alone is no reason."""
    scripts = [LAB / "l1" / name for name in ("initramfs", "init", "agent.py")]
    sources = [*(LAB / "modules").iterdir(), *(LAB / name for name in ("kernel.py", "oot.py", "packages.py"))]
    inputs = fingerprint([*scripts, *sources])
    folder = built("kernel", inputs, _build)
    return Kernel((folder / "version").read_text(), folder / "vmlinux", folder / "initrd.img")


def _build(folder: Path) -> None:
    package = kernel_package()
    version = package.version
    tree = folder / "tree"
    run(["dpkg-deb", "-x", package.path, tree])
    run(["depmod", "-b", tree, version])
    (folder / "vmlinux").write_bytes(uncompressed((tree / "boot" / f"vmlinuz-{version}").read_bytes()))
    (folder / "initrd.img").write_bytes(gzip.compress(_initramfs(folder, tree, package), 1))
    (folder / "version").write_text(version)
    shutil.rmtree(tree)
    shutil.rmtree(folder / "root")


def uncompressed(image: bytes) -> bytes:
    """The ELF kernel inside a bzImage (Linux x86 boot protocol, ``payload_offset``): QEMU boots it by its PVH note,
    which spares the unpacking, slow in emulation."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if payload.startswith(b"\xfd7zXZ\0"):
        kernel = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b"\x1f\x8b"):
        kernel = zlib.decompressobj(31).decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        kernel = run(["zstd", "-dcq"], input=payload)
    else:
        raise LabError(f"the kernel is compressed in an unknown way ({payload[:6]!r})")
    if not kernel.startswith(b"\x7fELF"):
        raise LabError("what the kernel image holds is no ELF file")
    return kernel


def _initramfs(folder: Path, tree: Path, package: KernelPackage) -> bytes:
    version = package.version
    root = folder / "root"
    for name in ("bin", "proc", "sys", "dev", "root", "lab", f"modules/{version}"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    shutil.copy(LAB / "l1/initramfs", root / "init")
    shutil.copy(LAB / "l1/init", root / "lab/init")
    shutil.copy(LAB / "l1/agent.py", root / "lab/agent.py")
    for name in ("init", "lab/init"):
        (root / name).chmod(0o755)
    source = tree / "lib/modules" / version
    for module in _with_dependencies(tree, version, MODULES):
        target = root / "modules" / version / module
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / module, target)
    (root / "modules" / version / "extra").mkdir()
    for file in extra_modules(package):
        shutil.copy(file, root / "modules" / version / "extra" / file.name)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(source / name, root / "modules" / version / name)
    _index(root / "modules", version)
    order = [f"/modules/{version}/{module}" for module in _with_dependencies(tree, version, BOOT_MODULES)]
    (root / "boot-modules").write_text("".join(f"{path}\n" for path in order))
    names = "\0".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    return run(["cpio", "--null", "--quiet", "-o", "-H", "newc"], cwd=root, input=names.encode())


def _index(modules: Path, version: str) -> None:
    """depmod wants its ``lib/modules`` around the folder."""
    base = modules.parent.parent / "depmod"
    (base / "lib").mkdir(parents=True)
    os.symlink(modules, base / "lib/modules")
    run(["depmod", "-b", base, version])
    shutil.rmtree(base)


def _with_dependencies(tree: Path, version: str, modules: Iterable[str]) -> list[str]:
    """Paths below the version's folder, in the order in which they load."""
    paths: dict[str, None] = {}
    for module in modules:
        output = run(["modprobe", "-d", tree, "-S", version, "--show-depends", module]).decode()
        for line in output.splitlines():
            if line.startswith("insmod "):
                paths[line.split()[1].split(f"/lib/modules/{version}/")[1]] = None
    return list(paths)
