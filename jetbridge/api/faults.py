"""The answer of each front door to what it refuses, without the framework of the routes: the embedded Placement's process, which
needs one of these at most, starts faster without that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

COMPUTE_NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _compute(status: int, code: str, message: str) -> dict[str, Any]:
    return {COMPUTE_NAMES.get(status, "computeFault"): {"code": status, "message": message}}


def _identity(status: int, code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "title": _phrase(status), "message": message}}


def _network(status: int, code: str, message: str) -> dict[str, Any]:
    return {"NeutronError": {"type": code, "message": message, "detail": ""}}


def _image(status: int, code: str, message: str) -> dict[str, Any]:
    return {"code": f"{status} {_phrase(status)}", "title": _phrase(status), "message": message}


def _accelerator(status: int, code: str, message: str) -> dict[str, Any]:
    return {"error_message": {"debuginfo": None, "faultcode": code, "faultstring": message}}


def _plain(status: int, code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message}}


SHAPES: Mapping[str, Callable[[int, str, str], dict[str, Any]]] = {
    "/compute": _compute,
    "/identity": _identity,
    "/network": _network,
    "/image": _image,
    "/accelerator": _accelerator,
}


def fault(
    path: str, status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The answer of the front door that ``path`` belongs to. ``code`` names the kind of error where the shape has
    room for it."""
    front = "/" + path.lstrip("/").partition("/")[0]
    body = SHAPES.get(front, _plain)(status, code or COMPUTE_NAMES.get(status, "error"), printable(message))
    return JSONResponse(body, status_code=status, headers=dict(headers) if headers else None)


def printable(text: str) -> str:
    """``text`` that every encoder takes: lone surrogates are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
