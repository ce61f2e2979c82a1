"""Requests made of our OpenAPI document, all by chance: `make test-long`; `--seed` has a run again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.long.surface import Surface, hosts
from tests.system.cloud import running

EXAMPLES = 25


@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
def test_no_request_is_answered_by_an_error_inside(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = request.config.getoption("--seed")
    seed = random.SystemRandom().randrange(1_000_000) if given is None else given
    with capsys.disabled():
        print(f"\nrequests: --seed {seed}", flush=True)
    with running(tmp_path, hosts()) as cloud:
        surface = Surface(cloud)
        surface.explore(EXAMPLES, seed)
    with capsys.disabled():
        print(dict(surface.answers), flush=True)
    assert not surface.found, "\n".join(surface.found)
