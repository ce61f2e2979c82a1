"""Equal values held once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Shared(Generic[T]):
    """Answers for each value the first equal one it was shown, so that memory is held once and comparing is comparing identities.
    Forgets all of them when they are too many: sharing is never needed, only cheaper."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[T, T] = {}

    def of(self, value: T) -> T:
        if len(self._values) >= self._most:
            self._values.clear()
        return self._values.setdefault(value, value)
