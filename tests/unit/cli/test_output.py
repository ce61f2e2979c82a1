from __future__ import annotations

import json
import logging

import pytest

from jetbridge.cli.output import cell, log_warnings_shown, plain_table, print_json, print_table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        ("", ""),
        ({}, "-"),
        ({"a": 1, "b": None}, "a=1, b=None"),
        ([], "-"),
        (["x", "y"], "x, y"),
        ("two\nlines\x1b[31m", "two lines [31m"),
    ],
)
def test_cells_are_one_line_without_control_characters(value: object, text: str) -> None:
    assert cell(value) == text


def test_piped_tables_are_aligned_and_have_a_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("HOST", "N"), [("a-long-name" * 20, 1), ("b", None)], empty="nothing")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["HOST", "N"]
    assert lines[1].split() == ["a-long-name" * 20, "1"]
    assert lines[2].split() == ["b", "-"]
    assert len({line.rindex(last) for line, last in zip(lines, ("N", "1", "-"), strict=True)}) == 1
    assert "\x1b" not in "".join(lines)


def test_an_empty_table_says_so_on_stderr_and_leaves_stdout_to_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("HOST",), [], empty="there are no hosts yet")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "there are no hosts yet\n"


def test_json_is_whole_and_keeps_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "Grüße", "n": None})
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "Grüße", "n": None}
    assert "Grüße" in out


def test_last_column_is_not_padded() -> None:
    assert plain_table(("A", "B"), [("x", "long"), ("y", "s")]) == "A  B\nx  long\ny  s\n"


def test_warnings_of_the_log_are_shown_while_a_service_starts(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("jetbridge.compute.inventory")
    with log_warnings_shown("/state/jetbridge.log"):
        logger.info("Host %s: 4 devices new", "gpu1")
        logger.warning("Host %s: adress is not a known key, address is", "gpu1")
    logger.warning("later")
    assert capsys.readouterr().err == "warning: Host gpu1: adress is not a known key, address is\n"


def test_many_warnings_are_left_to_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with log_warnings_shown("/state/jetbridge.log"):
        for number in range(12):
            logging.getLogger("jetbridge").warning("host %d", number)
    lines = capsys.readouterr().err.splitlines()
    assert lines[9:] == ["warning: host 9", "warning: 2 more warnings are in /state/jetbridge.log"]
