"""What a message holds when it travels between processes: JSON, with the context, the deadline, and errors by their code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jetbridge.errors import Invalid, JetbridgeError
from jetbridge.model.context import RequestContext
from jetbridge.rpc.messages import plain_message


@dataclass(frozen=True)
class Envelope:
    """``deadline``: seconds since the epoch after which nobody wants the answer any more, by clocks that agree (as heartbeats need them
    to); None: whenever. ``trace``: the place of the message in a trace, as W3C Trace Context's traceparent (https://www.w3.org/TR/trace-context/)."""

    context: RequestContext
    method: str
    payload: Mapping[str, Any]
    deadline: float | None = None
    trace: str | None = None

    def to_message(self) -> dict[str, Any]:
        """Without the context, which travels beside it."""
        arguments = {"payload": dict(self.payload), "deadline": self.deadline, "trace": self.trace}
        return {"method": self.method, "args": arguments}

    @classmethod
    def received(cls, context: Mapping[str, Any], message: Mapping[str, Any]) -> Envelope:
        """Raises ``KeyError`` or ``TypeError`` for what no Jetbridge has sent."""
        arguments = message["args"]
        return cls(
            context=RequestContext.from_message(dict(context)),
            method=str(message["method"]),
            payload=dict(arguments["payload"]),
            deadline=arguments["deadline"],
            trace=arguments.get("trace"),
        )


def answer_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"answer": dict(payload)}


def answer_error(error: JetbridgeError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message, "facts": _plain_facts(error.facts)}}


def opened(answer: Any) -> dict[str, Any]:
    """The payload of an answer. Raises the handler's error under its class."""
    if not isinstance(answer, Mapping) or ("answer" not in answer and "error" not in answer):
        raise JetbridgeError(f"Not an answer of Jetbridge: {answer!r}")
    if "error" in answer:
        raise _error(answer["error"])
    return dict(answer["answer"])


def _error(told: Mapping[str, Any]) -> JetbridgeError:
    """Of a code that this version doesn't have, only the message is known."""
    known = _classes().get(str(told["code"]), JetbridgeError)
    error = known(str(told["message"]))
    error.facts = dict(told["facts"])
    return error


def _plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in facts.items():
        try:
            plain.update(plain_message({name: value}, "facts"))
        except Invalid:
            plain[name] = str(value)
    return plain


@cache
def _classes() -> Mapping[str, type[JetbridgeError]]:
    return {known.__name__: known for known in _family(JetbridgeError) if known.__module__ == JetbridgeError.__module__}


def _family(parent: type[JetbridgeError]) -> Iterator[type[JetbridgeError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from _family(child)
