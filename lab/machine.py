"""Starts and stops L1, and runs commands in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from lab.cache import CACHE, PROJECT, LabError, built, fingerprint
from lab.hardware import KERNEL_OPTIONS, device_options, machine_options
from lab.image import code, environment
from lab.kernel import l1_kernel

SERVICE_PORT = 8774
PLACEMENT_PORT = 8778
"""Where the service and its Placement listen in L1; ``Machine.port`` and ``Machine.placement_port`` lead there."""
START_SECONDS = 900
PATIENCE = 600
"""Seconds after which something in L1 is taken for stuck: on a machine with fifty busy processes a minute is short for ``virsh create``."""
MEMORY_MB = 3072
SLACK = 120
"""Seconds over a command's own that its answer may take when this machine is busy: L1's agent keeps the limit."""
RUN = CACHE / "run"


class CommandFailed(LabError):
    pass


class Machine:
    """A running L1. Made by ``start`` or ``attach``."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "machine.json").read_text())
        self.folder = folder
        self.pid: int = facts["pid"]
        self.port: int = facts["port"]
        self.placement_port: int = facts["placement_port"]
        self._channel = socket.socket(socket.AF_UNIX)
        self._channel.connect(str(folder / "agent.sock"))
        self._numbers = itertools.count(1)
        self._writing = threading.Lock()
        self._waiting: dict[int, Future[tuple[int, str]]] = {}
        threading.Thread(target=self._read, name="l1-agent", daemon=True).start()

    # --- commands ---

    def run(self, command: str, *, timeout: float = PATIENCE, check: bool = True) -> str:
        """The output of a shell command in L1. Raises ``CommandFailed`` when its code isn't 0, unless ``check`` is False."""
        code, output = self.attempt(command, timeout=timeout)
        if check and code != 0:
            raise CommandFailed(f"in L1, {command!r} ended with {code}: {output.strip()}")
        return output

    def attempt(self, command: str, *, timeout: float = PATIENCE) -> tuple[int, str]:
        """Exit code and output."""
        try:
            return self._send(command, timeout).result(timeout + SLACK)
        except TimeoutError:
            raise LabError(f"L1's agent doesn't answer to {command!r}") from None

    def _send(self, command: str, timeout: float) -> Future[tuple[int, str]]:
        number = next(self._numbers)
        future: Future[tuple[int, str]] = Future()
        self._waiting[number] = future
        line = json.dumps({"id": number, "command": command, "timeout": timeout}).encode() + b"\n"
        with self._writing:
            self._channel.sendall(line)
        return future

    def read(self, path: str) -> str:
        return self.run(f"cat {shlex.quote(path)}").strip()

    def driver(self, address: str) -> str | None:
        """The driver a PCI function is bound to, by sysfs."""
        code, output = self.attempt(f"readlink /sys/bus/pci/devices/{address}/driver")
        return output.strip().rsplit("/", 1)[-1] if code == 0 else None

    def put(self, path: str, text: str) -> None:
        self.run(f"mkdir -p $(dirname {shlex.quote(path)}) && printf %s {shlex.quote(text)} >{shlex.quote(path)}")

    def monitor(self, command: str, **arguments: object) -> Any:
        """A command to QEMU's monitor (QMP) of L1: devices are pulled out and put in by it."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as channel:
            channel.connect(str(self.folder / "monitor.sock"))
            stream = channel.makefile("rw", encoding="utf-8")
            for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                answer = _monitor_answer(stream)
        if "error" in answer:
            raise LabError(f"QEMU refused {command}: {answer['error']['desc']}")
        return answer["return"]

    # --- life ---

    @property
    def alive(self) -> bool:
        return _alive(self.pid)

    def wait_ready(self, seconds: float) -> None:
        """Until the agent answers, which it does once libvirt does."""
        deadline = time.monotonic() + seconds
        answer = self._send("true", 10)
        while not answer.done():
            if not self.alive:
                raise LabError(f"L1 ended while it started; its console:\n{self.console_tail()}")
            if time.monotonic() > deadline:
                raise LabError(f"L1 wasn't up after {seconds:g} s; its console:\n{self.console_tail()}")
            try:
                answer.result(0.5)
            except TimeoutError:
                continue
            except LabError:  # gone between two looks
                raise LabError(f"L1 ended while it started; its console:\n{self.console_tail()}") from None

    def console_tail(self, lines: int = 30) -> str:
        with contextlib.suppress(OSError):
            text = (self.folder / "console.log").read_text(errors="replace")
            errors = (self.folder / "qemu.log").read_text(errors="replace")
            return "\n".join([*text.splitlines()[-lines:], *errors.splitlines()[-lines:]])
        return "(none)"

    def stop(self) -> None:
        """Nothing in L1 is worth a clean end: all it wrote lies in memory."""
        with contextlib.suppress(OSError):
            self._channel.close()
        _end(self.pid)
        (self.folder / "machine.json").unlink(missing_ok=True)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            for line in self._channel.makefile("rb"):
                with contextlib.suppress(ValueError):
                    answer = json.loads(line)
                    future = self._waiting.pop(answer["id"], None)
                    if future is not None:
                        future.set_result((answer["code"], answer["output"]))
        for future in tuple(self._waiting.values()):
            if not future.done():
                future.set_exception(LabError("L1 is gone"))


def start(early: str = "") -> Machine:
    """Boots an L1 and waits until its libvirt answers. ``early``: a module of the project that L1 runs as soon as it sees it.
    Raises ``LabError`` with the end of its console."""
    kernel, image = l1_kernel(), environment()
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir(parents=True, mode=0o700)
    port, placement_port = _free_ports(2)
    python = os.path.realpath(sys.executable)
    command = [
        *("qemu-system-x86_64", "-name", "jetbridge-lab", "-nodefaults", "-no-reboot", "-display", "none"),
        *machine_options(MEMORY_MB),
        *("-kernel", str(kernel.image), "-initrd", str(kernel.initrd)),
        *(
            "-append",
            " ".join((*KERNEL_OPTIONS, f"lab.project={PROJECT}", f"lab.python={python}", f"lab.early={early}")),
        ),
        *("-chardev", f"file,id=console,path={RUN}/console.log", "-serial", "chardev:console"),
        *("-qmp", f"unix:{RUN}/monitor.sock,server=on,wait=off"),
        *_share("root", Path("/")),
        *_share("project", PROJECT),
        *("-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={RUN}/agent.sock,server=on,wait=off"),
        *("-device", "virtserialport,chardev=agent,name=lab"),
        *("-netdev", f"user,id=service,{_forward(port, SERVICE_PORT)},{_forward(placement_port, PLACEMENT_PORT)}"),
        *("-device", "virtio-net-pci,netdev=service,romfile="),
        *("-device", "virtio-rng-pci"),
        *_image("environment", image, 0xD),
        *_image("code", code(RUN), 0xE),
        *device_options(RUN),
    ]
    with (RUN / "qemu.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (RUN / "machine.json").write_text(json.dumps({"pid": process.pid, "port": port, "placement_port": placement_port}))
    try:
        _wait_for_socket(RUN / "agent.sock", process)
        machine = Machine(RUN)
        machine.wait_ready(START_SECONDS)
        _keep_capabilities(machine, image)
    except BaseException:
        _end(process.pid)
        (RUN / "machine.json").unlink(missing_ok=True)
        raise
    return machine


def attach() -> Machine | None:
    """The L1 that somebody started and left running; None: there is none."""
    try:
        pid = json.loads((RUN / "machine.json").read_text())["pid"]
    except (OSError, ValueError):
        return None
    if not _alive(pid):
        return None
    return Machine(RUN)


def _keep_capabilities(machine: Machine, image: Path) -> None:
    """Keeps what L1's libvirt finds out about the QEMU of this image by running it, for the next L1: it takes as long as a guest's boot."""

    def build(folder: Path) -> None:
        machine.run("virsh -q domcapabilities --virttype qemu --machine q35")
        for path in machine.run("ls /var/cache/libvirt/qemu/capabilities/*.xml").split():
            (folder / Path(path).name).write_text(machine.run(f"cat {shlex.quote(path)}"))

    built("capabilities", fingerprint([], str(image.stat().st_mtime_ns), l1_kernel().version), build)


def _share(tag: str, path: Path) -> Iterator[str]:
    # "none": owners and modes as they are, without the right to change them; several file systems may lie below one folder.
    yield from (
        "-virtfs",
        f"local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap",
    )


def _image(name: str, image: Path, slot: int) -> Iterator[str]:
    """Memory of L1 with the file's content, of which L1 changes a copy: what lies there needs no reading. L1 has them as /dev/pmem0
    and /dev/pmem1, in the order of their slots."""
    size = image.stat().st_size
    yield from ("-object", f"memory-backend-file,id={name},mem-path={image},size={size},share=off")
    yield from ("-device", f"virtio-pmem-pci,memdev={name},bus=pcie.0,addr={slot:#x}")


def _forward(port: int, port_in_l1: int) -> str:
    return f"hostfwd=tcp:127.0.0.1:{port}-:{port_in_l1}"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        found = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in found:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in found]


def _wait_for_socket(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"QEMU didn't start: {(RUN / 'qemu.log').read_text(errors='replace').strip()}")
        time.sleep(0.05)


def _monitor_answer(stream: Any) -> dict[str, Any]:
    for line in stream:
        message: dict[str, Any] = json.loads(line)
        if "return" in message or "error" in message:
            return message
    raise LabError("QEMU's monitor closed")


def _alive(pid: int) -> bool:
    try:
        name = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"jetbridge-lab" in name


def _end(pid: int) -> None:
    if not _alive(pid):
        return
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
