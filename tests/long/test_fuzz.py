"""100,000 wrong and right inputs: `make test-long`; `--seed` has a run again."""

from __future__ import annotations

import random

import pytest

from tests.long.fuzz import Fuzzer, told

INPUTS = 100_000


@pytest.mark.timeout(0)
def test_every_input_ends_in_a_clear_error_or_a_right_result(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    given = request.config.getoption("--seed")
    seed = random.SystemRandom().randrange(1_000_000) if given is None else given
    fuzzer = Fuzzer(seed)
    with capsys.disabled():
        print(f"\nfuzz: --seed {seed}", flush=True)
    fuzzer.run(INPUTS)
    with capsys.disabled():
        print(f"accepted: {fuzzer.accepted}", flush=True)
    assert not fuzzer.findings, told(fuzzer, seed)
