"""10,000 random operations from a seed: `make test-long`, or `pytest tests/long --seed SEED --operations COUNT` to have one again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.long.driver import run
from tests.long.operations import operations

COUNT = 10_000


@pytest.mark.timeout(0)
def test_random_operations_break_nothing(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    given = request.config.getoption("--seed")
    seed = random.SystemRandom().randrange(1_000_000) if given is None else given
    count = request.config.getoption("--operations") or COUNT
    with request.getfixturevalue("capsys").disabled():
        print(f"\nrandom operations: --seed {seed} --operations {count}", flush=True)
    counts = run(tmp_path, list(operations(seed, count)), f"pytest tests/long --seed {seed} --operations {count}")
    with request.getfixturevalue("capsys").disabled():
        print(dict(counts), flush=True)
    assert counts["ACTIVE"], counts
    assert counts["ERROR"], counts
    assert counts["died"], counts
