"""The version documents of the Compute API, by which clients find it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from jetbridge.api.microversions import MAXIMUM, MINIMUM

router = APIRouter(tags=["versions"])

PREFIX = "/compute"
VERSION_PREFIX = f"{PREFIX}/v2.1"


def _document(request: Request) -> dict[str, Any]:
    href = f"{str(request.base_url).rstrip('/')}{VERSION_PREFIX}/"
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": str(MAXIMUM),
        "min_version": str(MINIMUM),
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": href}],
    }


@router.get(PREFIX)
def versions(request: Request) -> dict[str, Any]:
    return {"versions": [_document(request)]}


@router.get(VERSION_PREFIX)
def version(request: Request) -> dict[str, Any]:
    document = _document(request)
    media = {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
    return {"version": {**document, "media-types": [media]}}
