from __future__ import annotations

import pytest

from jetbridge.pci.words import bool_word, lenient_bool, nearest, strict_bool

TRUE = ["1", "t", "true", "on", "y", "yes", " TRUE ", True, 1]
FALSE = ["0", "f", "false", "off", "n", "no", " No ", False, 0]


@pytest.mark.parametrize("word", TRUE)
def test_true_words(word: object) -> None:
    assert strict_bool(word) is True
    assert lenient_bool(word) is True


@pytest.mark.parametrize("word", FALSE)
def test_false_words(word: object) -> None:
    assert strict_bool(word) is False
    assert lenient_bool(word) is False


@pytest.mark.parametrize("word", ["perhaps", "", "2", 2, None])
def test_other_words_are_refused_or_false(word: object) -> None:
    with pytest.raises(ValueError, match=r"is not one of 1, t, true, on, y, yes, 0, f, false, off, n, no$") as caught:
        strict_bool(word)
    assert str(caught.value).startswith(repr(word))
    assert lenient_bool(word) is False


def test_bool_words() -> None:
    assert (bool_word(True), bool_word(False)) == ("true", "false")


def test_nearest_looks_past_letter_case() -> None:
    assert nearest("gpu", ["NIC", "GPU"]) == "GPU"
    assert nearest("a100-sxm", ["a100sxm", "nic"]) == "a100sxm"
    assert nearest("fpga", ["nic", "h100"]) is None
    assert nearest("fpga", []) is None
    assert nearest("vendor", ["vendor_id"], cutoff=0.9) is None
