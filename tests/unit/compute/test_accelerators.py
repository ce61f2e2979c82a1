"""The host's accelerators: what its lines and its report say goes into the tables of the embedded service."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from jetbridge.compute.inventory import take_inventory
from jetbridge.config.settings import Settings
from jetbridge.db import accelerators, compute_nodes
from jetbridge.errors import InvalidConfiguration
from jetbridge.model.accelerator import Accelerator
from tests.unit.compute.conftest import T4, Bench, MakeBench

GPUS = [{"address": f"0000:{bus:02x}:00.0", **T4} for bus in range(1, 4)]


def lines(*accelerator: dict[str, Any], pci: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """Options of a bench."""
    settings = Settings(accelerator_device_spec=tuple(map(json.dumps, accelerator)))
    return {"device_spec": list(pci), "settings": settings}


def known(bench: Bench) -> tuple[Accelerator, ...]:
    with bench.host.database.read() as conn:
        return accelerators.of_host(conn, bench.node_id)


def generation(bench: Bench) -> int:
    with bench.host.database.read() as conn:
        return compute_nodes.get(conn, bench.node_id).generation


def test_functions_come_and_go_with_the_hardware(bench: MakeBench) -> None:
    host = bench(devices=GPUS, **lines({**T4, "type": "GPU"}))
    assert [each.address for each in known(host)] == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    before = generation(host)
    take_inventory(host.host)
    assert generation(host) == before
    host.change({"devices": GPUS[:1]})
    take_inventory(host.host)
    assert [each.address for each in known(host)] == ["0000:01:00.0"]


def test_a_failed_discovery_gives_and_frees_nothing(bench: MakeBench) -> None:
    host = bench(devices=GPUS[:1], **lines({**T4, "type": "GPU"}))
    host.change({"devices": GPUS[:1], "simulate": {"discovery": "raise"}})
    take_inventory(host.host)
    (unknown,) = known(host)
    assert unknown.handles[0].condition == "unknown"
    host.change({"devices": GPUS[:1]})
    take_inventory(host.host)
    (found,) = known(host)
    assert found.handles[0].condition == "ok"


def test_f17_a_function_that_two_options_give_away_is_refused_at_start(bench: MakeBench) -> None:
    options = lines({"address": "0000:02:00.0", "type": "GPU"}, pci=(T4,))
    with pytest.raises(InvalidConfiguration) as refused:
        bench(devices=GPUS, **options)
    for words in ("0000:02:00.0", "[pci]device_spec line 1", "[accelerator]device_spec line 1"):
        assert words in refused.value.message


def test_f17_hardware_that_comes_to_be_given_twice_is_told(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    options = lines({"address": "0000:02:00.0", "type": "GPU"}, pci=(T4,))
    host = bench(devices=GPUS[:1], **options)
    host.change({"devices": GPUS})
    with caplog.at_level(logging.ERROR):
        take_inventory(host.host)
    assert known(host) == ()
    assert "0000:02:00.0" in caplog.text
