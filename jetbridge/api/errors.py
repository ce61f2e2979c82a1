"""Errors as the clients of each front door expect them.

``faults`` builds the answer; the handlers registered by ``install`` map every exception to one. The message always
names the field, the value and the fix; details of unexpected errors go to the log only.
"""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from jetbridge.api.faults import fault
from jetbridge.api.validation import describe_validation
from jetbridge.errors import JetbridgeError

logger = logging.getLogger(__name__)


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
