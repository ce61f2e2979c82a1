"""Images of what L1 reads most. Over 9p each file that is opened costs several round trips to this machine, in an image only its blocks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from lab.cache import PROJECT, built, fingerprint, run

PROGRAMS = (
    *("sh", "bash", "cat", "cp", "cut", "chmod", "dirname", "grep", "kill", "ln", "ls", "mkdir", "mknod", "mount"),
    *("nohup", "pgrep", "pkill", "printf", "readlink", "rm", "sed", "setsid", "sleep", "tail", "umount", "wc"),
    *("ip", "lspci", "mdevctl", "modprobe", "nvme", "udevadm"),
    *("libvirtd", "qemu-system-x86_64", "virsh", "virtlogd"),
)
"""With the libraries they need."""

PLUGINS = ("/usr/lib/x86_64-linux-gnu/libvirt", "/usr/lib/x86_64-linux-gnu/qemu")
FOLDERS = (*PLUGINS, "/usr/lib/systemd", "/usr/lib/udev", "/usr/share/seabios", "/usr/share/qemu", "/usr/share/libvirt")
CODE = ("jetbridge", "tests")
_LEFT_OUT = ("config-*", "idlelib", "lib2to3", "site-packages", "test", "tkinter")


def environment() -> Path:
    """An image with ``root``, which lies above what L1 sees of /, and ``venv``. Built when packages of either kind changed."""
    inputs = fingerprint(
        [Path("/var/lib/dpkg/status"), Path(__file__)], sys.version, *environment_facts(PROJECT / ".venv")
    )
    return built("environment", inputs, _build_environment) / "image"


def environment_facts(venv: Path) -> tuple[str, str]:
    """What tells one virtual environment from another. Its place is among it: each of its commands begins with the path of its
    interpreter, so that those of a project that was copied or moved with its ``.lab`` would be found missing in L1."""
    site = next((venv / "lib").glob("python*/site-packages"))
    return str(venv), "\n".join(sorted(path.name for path in site.iterdir()))


def _build_environment(folder: Path) -> None:
    tree = folder / "tree"
    root = tree / "root"
    root.mkdir(parents=True)
    programs = [found for name in PROGRAMS if (found := shutil.which(name, path="/usr/sbin:/usr/bin"))]
    plugins = [str(path) for place in PLUGINS for path in Path(place).rglob("*.so")]
    files = [*programs, *_libraries([*programs, *plugins]), *(place for place in FOLDERS if os.path.exists(place))]
    run(["cp", "-a", "--parents", *sorted({link[1:] for file in files for link in _links(file)}), root], cwd=Path("/"))
    _copy_standard_library(root)
    shutil.copytree(PROJECT / ".venv", tree / "venv", symlinks=True)
    make_image(tree, folder / "image")
    shutil.rmtree(tree)


def _copy_standard_library(root: Path) -> None:
    prefix = Path(os.path.realpath(sys.executable)).parents[1]
    if prefix == Path("/usr"):
        return
    source = Path(os.__file__).parent
    target = root / source.relative_to("/")
    # First what has the folders with their owners and modes.
    for file in (os.path.realpath(sys.executable), *prefix.glob("lib/libpython*.so*")):
        run(["cp", "-a", "--parents", str(file)[1:], root], cwd=Path("/"))
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT), dirs_exist_ok=True)


def _libraries(programs: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for program in programs:
        for line in run(["sh", "-c", 'ldd "$0" 2>/dev/null || true', program]).decode().splitlines():
            found.update(word for word in line.split() if word.startswith("/"))
    return found


def _links(file: str) -> list[str]:
    """The file and the links that lead to it; all in folders as they really are."""
    path = os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file))
    if not os.path.islink(path):
        return [path]
    return [path, *_links(os.path.join(os.path.dirname(path), os.readlink(path)))]


def code(folder: Path) -> Path:
    """An image of the project's code as it is now."""
    tree = folder / "code"
    for name in CODE:
        shutil.copytree(PROJECT / name, tree / name)
    make_image(tree, folder / "code.img")
    shutil.rmtree(tree)
    return folder / "code.img"


def make_image(tree: Path, image: Path) -> None:
    size = sum(-(-path.lstat().st_size // 4096) * 4096 + 1024 for path in tree.rglob("*"))
    blocks = -(-(size * 5 // 4 + (16 << 20)) // (128 << 20))  # memory comes in pieces of 128 MiB
    options = ("-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-b", "4096", "-i", "8192")
    run(["mke2fs", *options, "-d", tree, image, f"{blocks * 128}M"])
