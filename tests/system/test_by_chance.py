"""Short runs of what `make test-long` does at length: random operations, random input. `--seed` draws others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long.driver import run
from tests.long.fuzz import Fuzzer, told
from tests.long.operations import Kill, operations
from tests.long.surface import Surface, hosts
from tests.system.cloud import running

SEED = 1
OPERATIONS = 80
INPUTS = 2000


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_has_a_process_killed(seed: int) -> None:
    assert Kill() in operations(seed, OPERATIONS)


def test_random_operations_break_nothing(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    seed = request.config.getoption("--seed") or SEED
    count = request.config.getoption("--operations") or OPERATIONS
    counts = run(tmp_path, list(operations(seed, count)), f"pytest tests/long --seed {seed} --operations {count}")
    assert counts["ACTIVE"], counts
    assert counts["died"], counts


def test_every_input_ends_in_a_clear_error_or_a_right_result(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or SEED
    fuzzer = Fuzzer(seed)
    fuzzer.run(INPUTS)
    assert not fuzzer.findings, told(fuzzer, seed)
    assert all(count > INPUTS // 500 for count in fuzzer.accepted.values()), "it tries nothing that is right"


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
def test_no_request_is_answered_by_an_error_inside(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Requests that schemathesis makes of our OpenAPI document."""
    with running(tmp_path, hosts()) as cloud:
        surface = Surface(cloud)
        surface.explore(1, request.config.getoption("--seed") or SEED)
    assert not surface.found, "\n".join(surface.found)
    assert {200, 202, 400, 404} <= set(surface.answers), surface.answers
