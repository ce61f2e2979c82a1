"""What is wrong with a request, in a sentence that names the field, the value and the fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

Problem = Mapping[str, Any]
"""As pydantic tells it."""

_SHOULD_BE = "Input should be "


def describe_validation(problems: Sequence[Problem], request: Request | None = None, body: Any = None) -> str:
    """One sentence for the first of pydantic's ``problems``: the field, the value, what is wrong. ``body`` is what was sent."""
    # A misspelt field is both unknown and missing: the unknown one tells more.
    problem = min(problems, key=lambda each: {"extra_forbidden": 0, "missing": 2}.get(each["type"], 1))
    problem, reason = _of_alternatives(problem, problems, body)
    where = problem["loc"][0] if problem["loc"] else "body"
    path = ".".join(str(part) for part in _way(problem, body))
    kind = problem["type"]
    if kind == "json_invalid":
        syntax = problem.get("ctx", {}).get("error", "not JSON")
        return f"The request body is not valid JSON: {syntax} (at character {problem['loc'][-1]}). Send a JSON object."
    if where == "body" and not path:
        content_type = request.headers.get("content-type") if request is not None else None
        if kind in ("model_attributes_type", "model_type", "dict_type") and isinstance(
            problem.get("input"), bytes | str
        ):
            return f"The Content-Type {content_type!r} is not supported: send a JSON object as application/json."
        if kind == "missing":
            return "The request body is missing: send a JSON object as application/json."
        if kind in ("too_short", "too_long"):
            return f"The request body: {problem['msg']}."
        expected = "list" if kind == "list_type" else "object"
        return f"The request body must be a JSON {expected}, not {shorten(problem.get('input'))}."
    if kind == "extra_forbidden":
        parent, _, name = path.rpartition(".")
        return (
            f"Invalid input for field/attribute {parent or 'body'}. Additional properties are not allowed "
            f"({name!r} was unexpected): leave it out."
        )
    if kind == "missing":
        parent, _, name = path.rpartition(".")
        return f"Invalid input for field/attribute {parent or where}. {name!r} is a required property."
    return f"Invalid input for field/attribute {path}. Value: {shorten(problem.get('input'))}. {reason}."


def _of_alternatives(problem: Problem, problems: Sequence[Problem], body: Any) -> tuple[Problem, str]:
    """Where a field may be one of several things, each of them has its own problem: the one that looked deepest into the value knows best
    what was meant, then one that a check of ours put into words; of others all is told that would do."""
    loc, way = problem["loc"], _way(problem, body)
    named = next((index for index, part in enumerate(loc[1:]) if index >= len(way) or part != way[index]), None)
    if named is None:
        return problem, _reason(problem)
    same = [each for each in problems if each["loc"][: named + 1] == loc[: named + 1]]
    depth = max(len(_way(each, body)) for each in same)
    same = [each for each in same if len(_way(each, body)) == depth]
    same = [each for each in same if each["type"] == "value_error"] or same
    reasons = list(dict.fromkeys(_reason(each) for each in same if _way(each, body) == _way(same[0], body)))
    return same[0], " or ".join([reasons[0], *(each.removeprefix(_SHOULD_BE) for each in reasons[1:])])


def _way(problem: Problem, body: Any) -> list[str | int]:
    """The keys and indexes that lead to the value, without pydantic's names of the alternatives that it tried on the way."""
    where, *parts = problem["loc"] or ("body",)
    if where != "body" or body is None:
        return parts
    way: list[str | int] = []
    for index, part in enumerate(parts):
        if (isinstance(body, Mapping) and part in body) or (isinstance(body, list) and isinstance(part, int)):
            body = body[part]
        elif problem["type"] != "missing" or index + 1 < len(parts):
            continue
        way.append(part)
    return way


def _reason(problem: Problem) -> str:
    """In words of JSON."""
    if problem["type"] in ("list_type", "tuple_type"):
        return f"{_SHOULD_BE}a list"
    if problem["type"] in ("model_attributes_type", "model_type", "dict_type"):
        return f"{_SHOULD_BE}an object"
    return str(problem["msg"]).removeprefix("Value error, ")


def shorten(value: object, limit: int = 120) -> str:
    """``value`` as text for a message, in ASCII and cut."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
