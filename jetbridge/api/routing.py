"""Errors in the shape each family of clients reads: a router names its shape once, its handlers just raise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from jetbridge.errors import Invalid, JetbridgeError

logger = logging.getLogger(__name__)

Shape = Callable[[JetbridgeError], Mapping[str, Any]]
"""An error as the JSON body its clients expect."""


def glance_shape(error: JetbridgeError) -> Mapping[str, Any]:
    title = HTTPStatus(error.http_status).phrase
    return {"message": error.message, "code": f"{error.http_status} {title}", "title": title}


def keystone_shape(error: JetbridgeError) -> Mapping[str, Any]:
    title = HTTPStatus(error.http_status).phrase
    return {"error": {"code": error.http_status, "title": title, "message": error.message}}


def neutron_shape(error: JetbridgeError) -> Mapping[str, Any]:
    return {"NeutronError": {"type": error.code, "message": error.message, "detail": ""}}


def jetbridge_shape(error: JetbridgeError) -> Mapping[str, Any]:
    return {"error": {"code": error.code, "message": error.message}}


def error_response(error: JetbridgeError, shape: Shape) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="jetbridge"'} if error.http_status == 401 else None
    return JSONResponse(shape(error), status_code=error.http_status, headers=headers)


def shaped_router(shape: Shape, prefix: str) -> APIRouter:
    """A router whose handlers may raise any ``JetbridgeError``; input that breaks a declared type is a 400 naming the field."""

    class ShapedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def shaped(request: Request) -> Response:
                try:
                    return await handle(request)
                except JetbridgeError as error:
                    if error.http_status >= 500:
                        logger.error("%s %s failed: %s", request.method, request.url.path, error.message)
                    return error_response(error, shape)
                except RequestValidationError as error:
                    return error_response(Invalid(reason=_first_complaint(error)), shape)

            return shaped

    return APIRouter(prefix=prefix, route_class=ShapedRoute, include_in_schema=False)


def _first_complaint(error: RequestValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return f"{where}={first.get('input')!r}: {first['msg']}" if where else str(first["msg"])


async def json_object(request: Request, key: str | None = None) -> Mapping[str, Any]:
    """The request's body as a JSON object, or the object under ``key`` in it. Raises ``Invalid``."""
    try:
        body = await request.json()
    except (ValueError, UnicodeDecodeError) as error:
        raise Invalid(reason=f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Invalid(reason="the body is nested too deeply") from None
    if not isinstance(body, dict):
        raise Invalid(reason="the body must be a JSON object")
    if key is None:
        return body
    inner = body.get(key)
    if not isinstance(inner, dict):
        raise Invalid(reason=f"the body must have an object named {key!r}")
    return inner
