"""The operator's cleaner: what is run on a device between two servers, and what is known of how it went.

A device that waits for it has the condition ``cleaning``. The record is written before the command starts, so that a process that
dies in the middle leaves a trace: the next one ends what is left of the command and runs it again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from jetbridge.compute.host import AgentHost
from jetbridge.compute.one_time_use import LAST_SERVER, cleaned, waits
from jetbridge.db import cleanings, compute_nodes, pci_devices
from jetbridge.db.cleanings import CUT, DONE, RUNNING, Cleaning
from jetbridge.db.connection import Connection
from jetbridge.errors import Conflict, NotFound
from jetbridge.pci.device import Condition, PciDevice

logger = logging.getLogger(__name__)

MARK = "JETBRIDGE_CLEANING"
"""In the command's environment, and so in that of all it starts: by it they are found again."""
NOT_WAITING = "not waiting"
LAST_LINES = 20
LOOK_SECONDS = 0.5
LONGEST_OUTPUT = 4096
READ_BACK = 4 * LONGEST_OUTPUT  # bytes: a character has four at most


@dataclass(frozen=True)
class Outcome:
    """``reason`` None: it succeeded. ``cut``: it was ended because its process stops, which says nothing of the device."""

    exit_code: int | None
    seconds: float
    output: str
    reason: str | None
    cut: bool = False


def clean_waiting(
    host: AgentHost, background: Callable[[Callable[[], None]], None], changed: Callable[[], None]
) -> None:
    """Start the cleaner for each device that waits for it and for which it hasn't failed. ``changed`` is called when a device may be
    given again."""
    if host.settings.pci_cleaner is None:
        return
    with host.database.read() as conn:
        node = compute_nodes.of_host(conn, host.name)
        waiting = [device for device in pci_devices.of_host(conn, node.id) if device.condition is Condition.CLEANING]
        last = cleanings.last_of_host(conn, node.id)
    for device in waiting:
        if device.address not in last or last[device.address].state in (DONE, CUT):
            _begin(host, node.id, device.address, background, changed)


def clean(
    host: AgentHost,
    address: str,
    background: Callable[[Callable[[], None]], None],
    changed: Callable[[], None],
    *,
    by_hand: bool,
) -> str:
    """An operator wants the device to be given again: the cleaner is started once more, or, ``by_hand`` or without a cleaner, the
    operator's word counts. Answers the state of the cleaning, ``NOT_WAITING`` of a device that waits for none. Raises ``NotFound``, ``Conflict``."""
    with host.database.read() as conn:
        node = compute_nodes.of_host(conn, host.name)
    if host.settings.pci_cleaner is not None and not by_hand:
        if not _begin(host, node.id, address, background, changed):
            raise Conflict(reason=f"device {address} of host {host.name} is being cleaned already")
        return RUNNING

    def write(conn: Connection) -> PciDevice | None:
        compute_nodes.lock(conn, node.id)
        device = _free_device(host, conn, node.id, address)
        if not waits(device):
            return None
        now = host.now()
        if _running(conn, node.id, address):
            raise Conflict(reason=f"device {address} of host {host.name} is being cleaned: wait until that has ended")
        cleanings.start(
            conn,
            Cleaning(node.id, address, DONE, now, instance_uuid=device.extra_info.get(LAST_SERVER), finished_at=now),
        )
        pci_devices.save(conn, [cleaned(device)], now=now)
        return device

    device = host.database.write(write)
    if device is None:
        return NOT_WAITING
    logger.info("Device %s of host %s is clean: an operator says so", device.identity, host.name)
    changed()
    return DONE


def resume(host: AgentHost, gone_owners: Collection[str], *, starting: bool) -> None:
    """Cleanings whose process is gone, or could not write how they ended: what is left of the command is ended, and the device waits for
    the next run. ``starting``: this host's agent has just begun, so that none of its own runs."""
    with host.database.read() as conn:
        node = compute_nodes.of_host(conn, host.name)
        running = [each for each in cleanings.last_of_host(conn, node.id).values() if each.state == RUNNING]
    for each in running:
        unwritten = each.id in host.unwritten_cleanings
        if not (starting or unwritten) and (each.owner == host.owner or each.owner not in gone_owners):
            continue
        _kill_marked(_mark(node.uuid, each.id))
        if host.database.write(partial(cleanings.cut, cleaning_id=each.id, now=host.now())):
            logger.warning(
                "The cleaning of device %s on host %s %s: it is run again",
                each.address,
                host.name,
                "ended when the database could not be told" if unwritten else "was cut off when its process ended",
            )
        host.unwritten_cleanings.discard(each.id)


def run_cleaner(
    command: str, address: str, timeout: float, mark: str, stopping: threading.Event | None = None
) -> Outcome:
    """Runs it to its end, or until ``stopping`` is set. Raises nothing: what goes wrong is the outcome. What it leaves running in the
    background is not waited for."""
    stopping = stopping or threading.Event()
    began = time.monotonic()
    # Not a pipe: that would be read until a daemon which the command started ends too.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [*shlex.split(command), address],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: mark},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Outcome(None, time.monotonic() - began, "", f"the cleaner {command!r} can't be run: {error}")
        cut = False
        if _ended(process, timeout, stopping):
            reason = None if process.returncode == 0 else f"the cleaner ended with {_ending(process.returncode)}"
        else:
            cut = stopping.is_set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _kill_marked(mark)
            process.wait()
            reason = "the service stops" if cut else f"the cleaner had not ended after {timeout:g} s"
        return Outcome(process.returncode, time.monotonic() - began, _tail(output), reason, cut)


def _ended(process: subprocess.Popen[bytes], timeout: float, stopping: threading.Event) -> bool:
    end = time.monotonic() + timeout
    while not stopping.is_set():
        left = end - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0, min(left, LOOK_SECONDS)))
            return True
        if left <= 0:
            return False
    return process.poll() is not None


def _begin(
    host: AgentHost,
    node_id: int,
    address: str,
    background: Callable[[Callable[[], None]], None],
    changed: Callable[[], None],
) -> bool:
    """False: it is under way already."""
    command = host.settings.pci_cleaner
    assert command is not None

    def write(conn: Connection) -> int | None:
        compute_nodes.lock(conn, node_id)
        device = _free_device(host, conn, node_id, address)
        if _running(conn, node_id, address):
            return None
        if device.condition is not Condition.CLEANING:
            pci_devices.save(conn, [replace(device, condition=Condition.CLEANING)], now=host.now())
        return cleanings.start(
            conn,
            Cleaning(
                node_id,
                address,
                RUNNING,
                host.now(),
                instance_uuid=device.extra_info.get(LAST_SERVER),
                owner=host.owner,
                command=command,
            ),
        )

    begun = host.database.write(write)
    if begun is None:
        return False
    background(lambda: _run_on_record(host, node_id, address, command, begun, changed))
    return True


def _run_on_record(
    host: AgentHost, node_id: int, address: str, command: str, cleaning_id: int, changed: Callable[[], None]
) -> None:
    try:
        _run(host, node_id, address, command, cleaning_id, changed)
    except Exception:
        # By its record it would run for as long as this process, and nobody could clean the device.
        host.unwritten_cleanings.add(cleaning_id)
        raise


def _run(
    host: AgentHost, node_id: int, address: str, command: str, cleaning_id: int, changed: Callable[[], None]
) -> None:
    with host.database.read() as conn:
        mark = _mark(compute_nodes.get(conn, node_id).uuid, cleaning_id)
    logger.info("Cleaning device %s of host %s: %s", address, host.name, command)
    outcome = run_cleaner(command, address, host.settings.pci_cleaner_timeout, mark, host.stopping)
    if outcome.cut:
        host.database.write(partial(cleanings.cut, cleaning_id=cleaning_id, now=host.now()))
        logger.warning(
            "The cleaning of device %s on host %s is cut off as the service stops: the next start runs it again",
            address,
            host.name,
        )
        return

    def write(conn: Connection) -> bool:
        compute_nodes.lock(conn, node_id)
        ended = cleanings.finish(
            conn,
            cleaning_id,
            exit_code=outcome.exit_code,
            seconds=outcome.seconds,
            output=outcome.output,
            reason=outcome.reason,
            now=host.now(),
        )
        device = pci_devices.get(conn, node_id, address)
        if not ended or outcome.reason is not None or device is None or device.owned:
            return False
        pci_devices.save(conn, [cleaned(device)], now=host.now())
        return True

    if host.database.write(write):
        logger.info(
            "Device %s of host %s is clean after %.1f s, and can be given again", address, host.name, outcome.seconds
        )
        changed()
    else:
        logger.error(
            "Device %s of host %s stays out: %s. Its last lines: %s. Put it right, then: jetbridge devices clean %s %s",
            address,
            host.name,
            outcome.reason or "its cleaning was declared dead",
            outcome.output or "none",
            host.name,
            address,
        )


def _free_device(host: AgentHost, conn: Connection, node_id: int, address: str) -> PciDevice:
    device = pci_devices.get(conn, node_id, address)
    if device is None:
        raise NotFound(noun="Device", key=f"{address} of host {host.name}")
    if device.owned:
        raise Conflict(
            reason=f"device {address} of host {host.name} is {device.status} by server {device.instance_uuid}"
        )
    if device.condition not in (Condition.OK, Condition.CLEANING):
        raise Conflict(
            reason=f"device {address} of host {host.name} is {device.condition}: see that it is known and free first"
        )
    return device


def _running(conn: Connection, node_id: int, address: str) -> bool:
    last = cleanings.last_of_host(conn, node_id).get(address)
    return last is not None and last.state == RUNNING


def _mark(node_uuid: str, cleaning_id: int) -> str:
    return f"{node_uuid}/{cleaning_id}"


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:
        return f"signal {-returncode}"


def _tail(output: BinaryIO) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - READ_BACK))
    # A NUL, which wiping tools print, is no text for PostgreSQL: the end could not be written, and the device was cleaned again for ever.
    text = output.read().decode(errors="replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    lines = text.splitlines()
    return "\n".join(lines[-LAST_LINES:])[-LONGEST_OUTPUT:]


def _kill_marked(mark: str) -> None:
    """Whatever runs with that mark in its environment."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
