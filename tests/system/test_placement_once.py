"""Devices that serve one server, and others that are cleaned between two, with devices chosen by pools and by Placement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetbridge.cli.devices import cleaning_note, shown_status
from tests.system.cloud import T4, gpu
from tests.system.placement_bench import MANAGED, T4_CLASS, Bench, open_bench

ONCE = [{**T4, "one_time_use": True}]


@pytest.fixture(scope="module", params=[False, True], ids=["by-pools", "by-placement"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    chosen = {"pci_in_placement": request.param}
    with open_bench(tmp_path_factory.mktemp("once"), filter_scheduler=chosen) as bench:
        yield bench


def clean(bench: Bench, name: str) -> dict[str, Any]:
    path = f"{bench.cloud.url}/jetbridge/v1/hosts/{name}/devices/0000:17:00.0/clean"
    answer: dict[str, Any] = bench.cloud.client.post(path).json()
    return answer


def told(bench: Bench, name: str) -> tuple[str, str | None]:
    """What `jetbridge devices` says of the host's one device: its status, and what to do."""
    found = bench.cloud.client.get(f"{bench.cloud.url}/jetbridge/v1/devices", params={"host": name}).json()["devices"]
    (device,) = found
    return shown_status(device), cleaning_note(device)


def test_case_86_one_time_use(request: pytest.FixtureRequest, bench: Bench) -> None:
    bench.host("once", [gpu(0x17)], ONCE)
    card = bench.providers.tree("once")["once_0000:17:00.0"]
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 0)}
    assert bench.providers.traits(card) == MANAGED | {"HW_PCI_ONE_TIME_USE"}
    server = bench.boot("once", "GPU")
    bench.settle("once")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    assert bench.providers.usage(card) == {T4_CLASS: 1}
    bench.delete(server)
    bench.settle("once")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    note = "used, and not cleaned yet: jetbridge devices clean once 0000:17:00.0"
    kept_by = "used" if request.node.callspec.id == "by-placement" else "cleaning"
    assert told(bench, "once") == (f"available ({kept_by})", note)
    refused = bench.boot("once", "GPU", status="ERROR")
    assert "No valid host was found" in bench.cloud.show(refused)["fault"]["message"]
    # An operator's own tool lowers what is reserved.
    bench.providers.set_reserved(card, T4_CLASS, 0)
    bench.settle("once")
    assert told(bench, "once") == ("available", None)
    again = bench.boot("once", "GPU")
    bench.delete(again)
    # Or the device is said to be clean here.
    assert clean(bench, "once") == {"state": "done"}
    bench.settle("once")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 0)}
    bench.delete(bench.boot("once", "GPU"))


def test_a_cleaner_brings_one_time_devices_back(bench: Bench, tmp_path: Path) -> None:
    fails, log = tmp_path / "fails", tmp_path / "log"
    script = tmp_path / "wipe"
    script.write_text(f"#!/bin/sh\necho wiped $1 >>{log}\necho cannot wipe\ntest ! -e {fails}\n")
    script.chmod(0o755)
    bench.host("wiped", [gpu(0x17)], ONCE, cleaner=str(script))
    card = bench.providers.tree("wiped")["wiped_0000:17:00.0"]
    fails.touch()
    bench.delete(bench.boot("wiped", "GPU"))

    def device() -> dict[str, Any]:
        found = bench.cloud.client.get(f"{bench.cloud.url}/jetbridge/v1/devices", params={"host": "wiped"}).json()
        (only,) = found["devices"]
        return dict(only)

    bench.cloud.until(lambda: (device()["cleaning"] or {}).get("state") == "failed", "the cleaner has failed", device)
    assert device()["condition"] == "cleaning"
    assert (device()["cleaning"]["exit_code"], device()["cleaning"]["output"]) == (1, "cannot wipe")
    bench.settle("wiped")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    fails.unlink()
    assert clean(bench, "wiped") == {"state": "running"}
    bench.cloud.until(lambda: device()["condition"] == "ok", "it is back", device)
    assert log.read_text() == "wiped 0000:17:00.0\n" * 2
    bench.settle("wiped")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 0)}
    bench.delete(bench.boot("wiped", "GPU"))


def test_a_used_device_that_was_away_comes_back_used(bench: Bench) -> None:
    """Also when it vanished while a server had it, and when no line matched it for a while."""
    bench.host("away", [gpu(0x17)], ONCE)
    server = bench.boot("away", "GPU")
    bench.settle("away")
    bench.host("away", [], ONCE)
    bench.delete(server)
    bench.settle("away")
    assert bench.totals("away") == {}
    for devices, specs in (([gpu(0x17)], ONCE), ([gpu(0x17)], []), ([], ONCE), ([gpu(0x17)], ONCE)):
        bench.host("away", devices, specs)
    card = bench.providers.tree("away")["away_0000:17:00.0"]
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    refused = bench.boot("away", "GPU", status="ERROR")
    assert clean(bench, "away") == {"state": "done"}
    bench.settle("away")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 0)}
    again = bench.boot("away", "GPU")
    for each in (refused, again):
        bench.delete(each)


def test_a_line_gets_one_time_use_while_a_server_has_the_device(bench: Bench) -> None:
    bench.host("later", [gpu(0x17)], [T4])
    card = bench.providers.tree("later")["later_0000:17:00.0"]
    server = bench.boot("later", "GPU")
    bench.host("later", [gpu(0x17)], ONCE)
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    assert bench.devices(server, "later") == {"later_0000:17:00.0": {T4_CLASS: 1}}
    bench.delete(server)
    bench.settle("later")
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
    bench.delete(bench.boot("later", "GPU", status="ERROR"))


def test_reserved_by_hand_beforehand_stays(bench: Bench) -> None:
    bench.host("before", [gpu(0x17)], ONCE)
    card = bench.providers.tree("before")["before_0000:17:00.0"]
    bench.providers.set_reserved(card, T4_CLASS, 1)
    bench.settle("before")
    bench.host("before", [gpu(0x17)], [{**ONCE[0], "traits": "new"}])
    assert bench.providers.inventory(card) == {T4_CLASS: (1, 1)}
