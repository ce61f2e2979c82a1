"""Errors as the clients of each front door expect them.

``fault`` builds the answer; the handlers registered by ``install`` map every exception to one. The message always
names the field, the value and the fix; details of unexpected errors go to the log only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from jetbridge.api.validation import describe_validation
from jetbridge.errors import JetbridgeError

logger = logging.getLogger(__name__)

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


def from_error(path: str, error: JetbridgeError) -> JSONResponse:
    if error.http_status >= 500:
        # What isn't there now (503) is a state of the world that its message tells; where the code stood adds nothing.
        surprise = error if error.http_status == 500 else None
        logger.error("%s while serving %s: %s", error.code, path, error.message, exc_info=surprise)
    return fault(path, error.http_status, error.message, code=error.code)


def install(app: FastAPI) -> None:
    """Registers the handlers that turn exceptions into answers."""

    @app.exception_handler(JetbridgeError)
    def jetbridge_error(request: Request, error: JetbridgeError) -> JSONResponse:
        return from_error(request.url.path, error)

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == 404 and message == "Not Found":
            message = f"The resource {request.url.path} could not be found."
        elif error.status_code == 405:
            allowed = ", ".join(_methods(request))
            message = f"Method {request.method} is not allowed for {request.url.path}: use {allowed}."
            return fault(request.url.path, 405, message, headers={"Allow": allowed})
        elif error.status_code == 400 and "parsing the body" in message:
            message = "The request body could not be read as JSON: send an object, UTF-8 encoded and not deeply nested."
        return fault(request.url.path, error.status_code, message, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
        return fault(request.url.path, 400, describe_validation(error.errors(), request, error.body), code="Invalid")


def _methods(request: Request) -> list[str]:
    """Every method that the path of ``request`` takes; each is a route of its own."""
    return [
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]
