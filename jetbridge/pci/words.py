"""Words of configuration and flavors: true, false, the nearest known one, and JSON."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any

TRUE_WORDS = ("1", "t", "true", "on", "y", "yes")
FALSE_WORDS = ("0", "f", "false", "off", "n", "no")


def read_json(text: str) -> Any:
    """Raises ``ValueError`` or ``RecursionError``, also for half a character (an escape such as \\ud800 alone), which nothing can show."""
    found = json.loads(text)
    json.dumps(found, ensure_ascii=False).encode()
    return found


def strict_bool(value: object) -> bool:
    """The truth of a word, a boolean, or the numbers 0 and 1. Anything else raises ``ValueError`` with the words allowed."""
    word = str(value).strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError(f"{value!r} is not one of {', '.join(TRUE_WORDS + FALSE_WORDS)}")


def lenient_bool(value: object) -> bool:
    """True for a true word; False for everything else."""
    return str(value).strip().lower() in TRUE_WORDS


def bool_word(value: bool) -> str:
    return "true" if value else "false"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name most like ``word``, whatever its case; None when none is near."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(by_lower), cutoff=cutoff)
    return by_lower[found[0]] if found else None
