from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from jetbridge.compute import cleaning, tracker
from jetbridge.compute.cleaning import MARK, run_cleaner
from jetbridge.db import cleanings, compute_nodes
from jetbridge.db.cleanings import Cleaning
from jetbridge.errors import Conflict, NotFound
from jetbridge.pci.device import Condition, Status
from tests.unit.compute.conftest import CONTEXT, T4, Bench, MakeBench, request

ADDRESS = "0000:17:00.0"
CARD = {"address": ADDRESS, **T4}


def script(folder: Path, text: str) -> str:
    path = folder / "wipe"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def now(work: Callable[[], None]) -> None:
    work()


class Later:
    """A pool that does nothing until it is told to."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self.tasks.append(work)


def given_back(make: MakeBench, command: str | None, timeout: int = 60) -> Bench:
    """A host whose device a server had and gave back."""
    bench = make(devices=[CARD])
    settings = replace(bench.host.settings, pci_cleaner=command, pci_cleaner_timeout=timeout)
    bench = Bench(replace(bench.host, settings=settings), bench.folder)
    server = bench.server(request())
    tracker.claim(bench.host, CONTEXT, server.uuid, bench.selection())
    tracker.allocate(bench.host, CONTEXT, server.uuid, bench.node_id)
    tracker.leave(bench.host, CONTEXT, server.uuid, bench.node_id)
    return bench


def last(bench: Bench) -> Cleaning:
    with bench.host.database.read() as conn:
        return cleanings.last_of_host(conn, bench.node_id)[ADDRESS]


def condition(bench: Bench) -> Condition:
    return bench.devices()[ADDRESS].condition


def test_a_device_comes_back_when_the_cleaner_has_succeeded(bench: MakeBench, tmp_path: Path) -> None:
    made = given_back(bench, script(tmp_path, f'echo "wiped $@" | tee -a {tmp_path}/log') + " --full")
    assert condition(made) is Condition.CLEANING
    pool, told = Later(), list[str]()
    cleaning.clean_waiting(made.host, pool, lambda: told.append("changed"))
    cleaning.clean_waiting(made.host, pool, lambda: told.append("changed"))
    assert len(pool.tasks) == 1, "it runs already"
    assert (last(made).state, last(made).owner, last(made).command) == ("running", "test", f"{tmp_path}/wipe --full")
    assert condition(made) is Condition.CLEANING
    pool.tasks.pop()()
    assert (tmp_path / "log").read_text() == f"wiped --full {ADDRESS}\n"
    assert (last(made).state, last(made).exit_code, last(made).output) == ("done", 0, f"wiped --full {ADDRESS}")
    assert condition(made) is Condition.OK
    assert told == ["changed"]
    cleaning.clean_waiting(made.host, pool, lambda: None)
    assert pool.tasks == []


def test_a_cleaner_that_fails_keeps_the_device_out(
    bench: MakeBench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = given_back(bench, script(tmp_path, "seq 100; echo cannot reset >&2; exit 3"))
    cleaning.clean_waiting(made.host, now, lambda: None)
    found = last(made)
    assert (found.state, found.exit_code, found.reason) == ("failed", 3, "the cleaner ended with exit code 3")
    assert found.output is not None
    assert found.output.splitlines()[-1] == "cannot reset"
    assert len(found.output.splitlines()) == 20
    assert f"jetbridge devices clean h1 {ADDRESS}" in caplog.text
    # It isn't run again by itself, and no server gets the device.
    cleaning.clean_waiting(made.host, lambda work: pytest.fail("it failed"), lambda: None)
    assert condition(made) is Condition.CLEANING
    script(tmp_path, "exit 0")
    assert cleaning.clean(made.host, ADDRESS, now, lambda: None, by_hand=False) == "running"
    assert (last(made).state, condition(made)) == ("done", Condition.OK)


@pytest.mark.parametrize("by_hand", [True, False])
def test_an_operator_says_that_it_is_clean(bench: MakeBench, tmp_path: Path, by_hand: bool) -> None:
    """By hand, or because the host has no cleaner."""
    made = given_back(bench, script(tmp_path, "exit 1"))
    cleaning.clean_waiting(made.host, now, lambda: None)
    host = made.host if by_hand else replace(made.host, settings=replace(made.host.settings, pci_cleaner=None))
    told: list[str] = []
    assert cleaning.clean(host, ADDRESS, now, lambda: told.append("changed"), by_hand=by_hand) == "done"
    assert (last(made).state, last(made).owner, condition(made)) == ("done", None, Condition.OK)
    assert told == ["changed"]
    assert cleaning.clean(host, ADDRESS, now, lambda: told.append("again"), by_hand=by_hand) == "not waiting"
    assert told == ["changed"]


def test_what_can_not_be_cleaned(bench: MakeBench, tmp_path: Path) -> None:
    made = given_back(bench, script(tmp_path, "exit 0"))
    with pytest.raises(NotFound, match=r"0000:99:00\.0 of host h1"):
        cleaning.clean(made.host, "0000:99:00.0", now, lambda: None, by_hand=True)
    cleaning.clean_waiting(made.host, lambda work: None, lambda: None)
    for by_hand in (True, False):
        with pytest.raises(Conflict, match="is being cleaned"):
            cleaning.clean(made.host, ADDRESS, now, lambda: None, by_hand=by_hand)
    cleaning.resume(made.host, (), starting=True)
    cleaning.clean_waiting(made.host, now, lambda: None)
    owner = made.server(request())
    tracker.claim(made.host, CONTEXT, owner.uuid, made.selection())
    with pytest.raises(Conflict, match=owner.uuid):
        cleaning.clean(made.host, ADDRESS, now, lambda: None, by_hand=True)


def test_without_a_cleaner_devices_come_back_as_they_are(bench: MakeBench) -> None:
    made = given_back(bench, None)
    assert condition(made) is Condition.OK
    cleaning.clean_waiting(made.host, lambda work: pytest.fail("there is none"), lambda: None)


def test_a_process_that_dies_while_it_cleans_is_followed_up(bench: MakeBench, tmp_path: Path) -> None:
    made = given_back(bench, script(tmp_path, "exit 0"))
    cleaning.clean_waiting(made.host, lambda work: None, lambda: None)
    # What the dead process had started still runs.
    with made.host.database.read() as conn:
        mark = f"{compute_nodes.get(conn, made.node_id).uuid}/{last(made).id}"
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: mark},
    ) as left:
        assert left.stdout is not None
        left.stdout.readline()  # until then the kernel may show no environment of it
        # Others of the same process may still be at work on theirs.
        cleaning.resume(made.host, ("somebody else",), starting=False)
        assert last(made).state == "running"
        cleaning.resume(replace(made.host, owner="new"), ("test",), starting=False)
        assert left.wait(30) == -signal.SIGKILL
    assert (last(made).state, condition(made)) == ("cut", Condition.CLEANING)
    cleaning.clean_waiting(made.host, now, lambda: None)
    assert (last(made).state, condition(made)) == ("done", Condition.OK)


def test_a_cleaning_of_which_the_database_took_no_end_is_run_again(bench: MakeBench, tmp_path: Path) -> None:
    """By its record it ran for as long as its process, and the device could not even be cleaned by hand."""
    made, pool = given_back(bench, script(tmp_path, f"echo wiped >> {tmp_path}/log")), Later()
    cleaning.clean_waiting(made.host, pool, lambda: None)
    cleaning.resume(made.host, (), starting=False)
    refuse = "CREATE TRIGGER full BEFORE UPDATE ON device_cleanings BEGIN SELECT RAISE(ABORT, 'no room'); END"
    made.host.database.write(lambda conn: conn.execute(sa.text(refuse)))
    with pytest.raises(DBAPIError, match="no room"):
        pool.tasks.pop()()
    made.host.database.write(lambda conn: conn.execute(sa.text("DROP TRIGGER full")))
    assert last(made).state == "running"
    cleaning.resume(made.host, (), starting=False)
    assert (last(made).state, condition(made)) == ("cut", Condition.CLEANING)
    cleaning.clean_waiting(made.host, now, lambda: None)
    assert (last(made).state, condition(made)) == ("done", Condition.OK)
    assert (tmp_path / "log").read_text() == "wiped\nwiped\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("kill -9 $$", "signal SIGKILL"), ("sleep 60 & sleep 60", "had not ended after 0.2 s")],
)
def test_how_a_cleaner_can_end(tmp_path: Path, text: str, reason: str) -> None:
    outcome = run_cleaner(script(tmp_path, text), ADDRESS, 0.2 if "ended" in reason else 60, "mark")
    assert outcome.reason is not None
    assert reason in outcome.reason


def test_what_a_cleaner_leaves_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    """A daemon that the driver's tool starts, say: it keeps the cleaner's output open."""
    text = "printf '\\351'; seq 30; setsid sleep 20 & exit 0"
    outcome = run_cleaner(script(tmp_path, text), ADDRESS, 10, "of-a-daemon")
    assert (outcome.exit_code, outcome.reason) == (0, None)
    assert outcome.output.splitlines() == [str(number) for number in range(11, 31)]
    assert outcome.seconds < 10


def test_what_a_cleaner_says_can_be_stored_anywhere(tmp_path: Path) -> None:
    """PostgreSQL takes no NUL in a text: the device was cleaned again and again, for it could not be written that it was clean."""
    outcome = run_cleaner(script(tmp_path, r"printf 'first bytes: \000\000\n'"), ADDRESS, 60, "of-a-wiping-tool")
    assert (outcome.output, outcome.reason) == ("first bytes: \ufffd\ufffd", None)


def test_a_cleaner_is_not_waited_for_when_the_service_stops(bench: MakeBench, tmp_path: Path) -> None:
    """It says nothing of the device: the next start cleans it."""
    made = given_back(bench, script(tmp_path, f"echo begun >> {tmp_path}/log; test -e {tmp_path}/quick || sleep 50"))
    pool = Later()
    cleaning.clean_waiting(made.host, pool, lambda: None)
    thread = threading.Thread(target=pool.tasks.pop())
    thread.start()
    end = time.monotonic() + 30
    while not (tmp_path / "log").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    made.host.stopping.set()
    thread.join(30)
    assert not thread.is_alive()
    assert (last(made).state, condition(made)) == ("cut", Condition.CLEANING)
    (tmp_path / "quick").touch()
    started = replace(made.host, stopping=threading.Event())
    cleaning.resume(started, (), starting=True)
    cleaning.clean_waiting(started, now, lambda: None)
    assert (last(made).state, condition(made)) == ("done", Condition.OK)
    assert (tmp_path / "log").read_text() == "begun\nbegun\n"


def test_of_a_cleaner_that_takes_too_long_nothing_is_left(tmp_path: Path) -> None:
    """Nor what it had put into a session of its own."""
    child = tmp_path / "child"
    text = f"setsid sh -c 'echo $$ >{child}; exec sleep 30' & sleep 30"
    outcome = run_cleaner(script(tmp_path, text), ADDRESS, 1, "of-a-slow-one")
    assert outcome.reason == "the cleaner had not ended after 1 s"
    assert outcome.seconds < 20
    left, end = Path("/proc") / child.read_text().strip() / "cmdline", time.monotonic() + 10
    while left.exists() and left.read_bytes():  # empty: dead, and nobody has asked how it ended
        assert time.monotonic() < end, left.read_bytes()
        time.sleep(0.05)


@pytest.mark.parametrize("command", ["/nonexistent/wipe", "'unbalanced"])
def test_a_cleaner_that_can_not_be_run(command: str) -> None:
    outcome = run_cleaner(command, ADDRESS, 60, "mark")
    assert outcome.exit_code is None
    assert "can't be run" in str(outcome.reason)


def test_a_cleaned_vf_leaves_its_siblings_alone(bench: MakeBench, tmp_path: Path) -> None:
    nic = {
        "address": "0000:3b:00.0",
        "vendor_id": "8086",
        "product_id": "1521",
        "pf": {"vfs": 2, "max_vfs": 2, "vf_product_id": "1520"},
    }
    made = bench(devices=[nic], device_spec=[{"vendor_id": "8086", "product_id": "1520"}])
    made = Bench(
        replace(made.host, settings=replace(made.host.settings, pci_cleaner=script(tmp_path, "exit 0"))), made.folder
    )
    server = made.server(replace(request(), spec=({"vendor_id": "8086", "dev_type": "type-VF"},)))
    (mine,) = tracker.claim(made.host, CONTEXT, server.uuid, made.selection()).devices
    tracker.release(made.host, CONTEXT, server.uuid, made.node_id)
    found = {address: (each.status, each.condition) for address, each in made.devices().items()}
    assert found.pop(mine.address) == (Status.AVAILABLE, Condition.CLEANING)
    assert list(found.values()) == [(Status.AVAILABLE, Condition.OK)]
    cleaning.clean_waiting(made.host, now, lambda: None)
    assert made.devices()[mine.address].condition is Condition.OK


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_record_names_the_server_that_had_the_device(bench: MakeBench, tmp_path: Path, by_hand: bool) -> None:
    made = given_back(bench, script(tmp_path, "true"))
    server = made.devices()[ADDRESS].extra_info["last_server"]
    assert len(server) == 36
    cleaning.clean(made.host, ADDRESS, now, lambda: None, by_hand=by_hand)
    assert last(made).instance_uuid == server
    assert condition(made) is Condition.OK
    assert "last_server" not in made.devices()[ADDRESS].extra_info
