"""The OpenAPI document: what FastAPI finds out by itself, and what it can't know (errors, versions, filters)."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from jetbridge.api.microversions import COMPUTE_HEADER, MAXIMUM, MINIMUM, SERVICE_HEADER
from jetbridge.api.server_queries import PARAMETERS

_ERROR = {
    "type": "object",
    "description": "One key that names the kind of error.",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
    },
}
_VERSION_PARAMETERS = (
    (SERVICE_HEADER, f"compute X.Y, from {MINIMUM} to {MAXIMUM}, or compute latest. Without it: {MINIMUM}."),
    (COMPUTE_HEADER, "The same without the word compute; the other header wins."),
)
_LISTS_OF_SERVERS = ("/compute/v2.1/servers", "/compute/v2.1/servers/detail")


def install(app: FastAPI) -> None:
    """Makes ``app.openapi`` answer the document; it is made once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            app.openapi_schema = _completed(made)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI documents it


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Error"] = _ERROR
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(operation, with_filters=path in _LISTS_OF_SERVERS and method == "get")
    return document


def _complete(operation: dict[str, Any], *, with_filters: bool) -> None:
    responses = operation["responses"]
    responses.pop("422", None)  # wrong input is answered 400
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses["4XX"] = {"description": "What is wrong with the request, and what to do.", "content": content}
    responses["503"] = {"description": "A service that is needed does not answer.", "content": content}
    parameters = operation.setdefault("parameters", [])
    for name, description in _VERSION_PARAMETERS:
        parameters.append(
            {"name": name, "in": "header", "description": description, "required": False, "schema": {"type": "string"}}
        )
    if with_filters:
        for name in sorted(PARAMETERS):
            schema = {"type": "array", "items": {"type": "string"}}
            parameters.append({"name": name, "in": "query", "required": False, "schema": schema})
