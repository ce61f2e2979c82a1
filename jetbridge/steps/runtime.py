"""Ordered steps with undo: how everything that changes more than one thing is done.

A step is recorded before it changes anything, and its undo counts from that moment: so an undo has to
cope with a change that happened wholly, half or not at all, and may run twice. An undo uses nothing that only the
step knew (it reads the database and asks the hypervisor), so that another process can run it after a crash.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

C = TypeVar("C")


@dataclass(frozen=True)
class Step(Generic[C]):
    """``do`` changes the world and returns the context that later steps see. ``undo`` takes it back; None: there is
    nothing to take back, or an earlier step's undo does it. ``holds``: what it made may use all that the steps before it gave, so that
    theirs is not taken back where its undo fails."""

    name: str
    do: Callable[[C], C]
    undo: Callable[[C], None] | None = None
    holds: bool = False


class Moment(enum.StrEnum):
    """Where a process can die around a step."""

    BEFORE_RECORD = "before-record"
    RECORDED = "recorded"
    CHANGED = "changed"


Observer = Callable[[str, Moment], None]
"""Told the step's name and the moment; what it raises counts as a failure of that step."""


def nobody(step: str, moment: Moment) -> None:
    """The observer that looks away."""


@dataclass(frozen=True)
class UndoFailure:
    """An undo that failed: left to reconciliation, with those of the steps before it if the step ``holds``."""

    step: str
    error: Exception


class StepFailed(Exception):
    """Raised by ``run_steps`` after the undos have run. ``cause`` is what the step raised, ``left`` the undos that failed."""

    def __init__(self, step: str, cause: Exception, left: tuple[UndoFailure, ...]) -> None:
        super().__init__(f"step {step}: {cause}")
        self.step = step
        self.cause = cause
        self.left = left


def run_steps(
    steps: Sequence[Step[C]],
    context: C,
    *,
    record: Callable[[str], None],
    recorded: str | None = None,
    observe: Observer = nobody,
) -> C:
    """Do ``steps`` in order and return the last context.

    ``record`` writes the step's name down durably before the step changes anything, or stops the run by raising: the step is not
    begun then. ``recorded`` is the step that the caller wrote down itself, together with what it began with. Whatever fails, the steps
    begun are undone in reverse and ``StepFailed`` is raised.
    """
    begun: list[Step[C]] = []
    for step in steps:
        try:
            observe(step.name, Moment.BEFORE_RECORD)
            if step.name != recorded:
                record(step.name)
            begun.append(step)
            observe(step.name, Moment.RECORDED)
            context = step.do(context)
            observe(step.name, Moment.CHANGED)
        except Exception as error:
            raise StepFailed(step.name, error, undo_steps(begun, context)) from error
    return context


def undo_steps(steps: Sequence[Step[C]], context: C) -> tuple[UndoFailure, ...]:
    """Undo ``steps`` in reverse, whatever fails, up to one that holds what the others gave and can't be undone; returns what failed."""
    failures: list[UndoFailure] = []
    for step in reversed(steps):
        if step.undo is None:
            continue
        try:
            step.undo(context)
        except Exception as error:
            logger.exception("Undo of step %s failed; reconciliation will return what it left", step.name)
            failures.append(UndoFailure(step.name, error))
            if step.holds:
                break
    return tuple(failures)


def begun_steps(steps: Sequence[Step[C]], recorded: str | None) -> Sequence[Step[C]]:
    """The steps that may have changed something when ``recorded`` is the last one written down. A name that isn't
    among them (an older or newer release wrote it) counts as all of them: undos cope with changes never made."""
    if recorded is None:
        return ()
    names = [step.name for step in steps]
    return steps[: names.index(recorded) + 1] if recorded in names else steps
