"""What hangs on a server: metadata, tags, its history, and the lists clients look into (interfaces, volumes)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field

from jetbridge.api.call import Call, ComputeCall, at_version
from jetbridge.api.fields import Body, Metadata, MetadataKey, MetadataValue, Tag
from jetbridge.api.server_actions import refuse_locked
from jetbridge.api.server_requests import MOST_TAGS, Tags
from jetbridge.api.server_views import addresses
from jetbridge.api.servers import find
from jetbridge.db import server_labels as labels
from jetbridge.db.connection import Connection
from jetbridge.errors import Invalid, NotFound
from jetbridge.model.server import Server

router = APIRouter(tags=["servers"])


# --- metadata --------------------------------------------------------------------------------------


class MetadataBody(Body):
    metadata: Metadata


class MetadataItem(Body):
    meta: dict[MetadataKey, MetadataValue] = Field(min_length=1, max_length=1)


def _change_metadata(call: Call, server_id: str, values: dict[str, str], *, replace: bool) -> dict[str, str]:
    def write(conn: Connection) -> dict[str, str]:
        server = find(call, server_id, conn)
        refuse_locked(call, server)
        labels.set_metadata(conn, server.uuid, values, replace=replace)
        return dict(find(call, server_id, conn).metadata)

    return call.services.database.write(write)


@router.get("/servers/{server_id}/metadata")
def metadata(server_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"metadata": dict(find(call, server_id).metadata)}


@router.post("/servers/{server_id}/metadata")
def add_metadata(server_id: str, body: MetadataBody, call: ComputeCall) -> dict[str, Any]:
    return {"metadata": _change_metadata(call, server_id, body.metadata, replace=False)}


@router.put("/servers/{server_id}/metadata")
def replace_metadata(server_id: str, body: MetadataBody, call: ComputeCall) -> dict[str, Any]:
    return {"metadata": _change_metadata(call, server_id, body.metadata, replace=True)}


@router.get("/servers/{server_id}/metadata/{key}")
def metadata_item(server_id: str, key: str, call: ComputeCall) -> dict[str, Any]:
    values = find(call, server_id).metadata
    if key not in values:
        raise NotFound(f"Metadata item {key!r} was not found on server {server_id}.")
    return {"meta": {key: values[key]}}


@router.put("/servers/{server_id}/metadata/{key}")
def set_metadata_item(server_id: str, key: str, body: MetadataItem, call: ComputeCall) -> dict[str, Any]:
    if key not in body.meta:
        raise Invalid(f"The body has the key {next(iter(body.meta))!r}, the URL {key!r}: send the same one.")
    _change_metadata(call, server_id, body.meta, replace=False)
    return {"meta": body.meta}


@router.delete("/servers/{server_id}/metadata/{key}", status_code=204)
def delete_metadata_item(server_id: str, key: str, call: ComputeCall) -> Response:
    def write(conn: Connection) -> None:
        server = find(call, server_id, conn)
        refuse_locked(call, server)
        if not labels.delete_metadata(conn, server.uuid, key):
            raise NotFound(f"Metadata item {key!r} was not found on server {server_id}.")

    call.services.database.write(write)
    return Response(status_code=204)


# --- tags ------------------------------------------------------------------------------------------


class TagsBody(Body):
    tags: Tags


_TAGS = [at_version("server-tags")]


def _change_tags(call: Call, server_id: str, change: Any) -> tuple[Server, tuple[str, ...]]:
    def write(conn: Connection) -> tuple[Server, tuple[str, ...]]:
        server = find(call, server_id, conn)
        tags = change(server)
        if len(tags) > MOST_TAGS:
            raise Invalid(f"Server {server_id} would have {len(tags)} tags: at most {MOST_TAGS} are allowed.")
        labels.replace_tags(conn, server.uuid, tags)
        return server, tuple(sorted(tags))

    return call.services.database.write(write)


@router.get("/servers/{server_id}/tags", dependencies=_TAGS)
def tags(server_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"tags": list(find(call, server_id).tags)}


@router.put("/servers/{server_id}/tags", dependencies=_TAGS)
def replace_tags(server_id: str, body: TagsBody, call: ComputeCall) -> dict[str, Any]:
    return {"tags": list(_change_tags(call, server_id, lambda server: body.tags)[1])}


@router.delete("/servers/{server_id}/tags", status_code=204, dependencies=_TAGS)
def delete_tags(server_id: str, call: ComputeCall) -> Response:
    _change_tags(call, server_id, lambda server: ())
    return Response(status_code=204)


@router.get("/servers/{server_id}/tags/{tag}", status_code=204, dependencies=_TAGS)
def has_tag(server_id: str, tag: str, call: ComputeCall) -> Response:
    if tag not in find(call, server_id).tags:
        raise NotFound(f"Server {server_id} has no tag {tag!r}.")
    return Response(status_code=204)


@router.put("/servers/{server_id}/tags/{tag}", status_code=201, dependencies=_TAGS)
def add_tag(server_id: str, tag: Tag, call: ComputeCall) -> Response:
    server, _ = _change_tags(call, server_id, lambda server: tuple(dict.fromkeys((*server.tags, tag))))
    location = {"Location": f"{call.url}/servers/{server_id}/tags/{tag}"} if tag.isascii() else {}
    return Response(status_code=204 if tag in server.tags else 201, headers=location)


@router.delete("/servers/{server_id}/tags/{tag}", status_code=204, dependencies=_TAGS)
def delete_tag(server_id: str, tag: str, call: ComputeCall) -> Response:
    def without(server: Server) -> tuple[str, ...]:
        if tag not in server.tags:
            raise NotFound(f"Server {server_id} has no tag {tag!r}.")
        return tuple(other for other in server.tags if other != tag)

    _change_tags(call, server_id, without)
    return Response(status_code=204)


# --- what clients look into ------------------------------------------------------------------------


@router.get("/servers/{server_id}/os-volume_attachments")
def volumes(server_id: str, call: ComputeCall) -> dict[str, Any]:
    find(call, server_id)
    return {"volumeAttachments": []}


@router.get("/servers/{server_id}/ips")
def ips(server_id: str, call: ComputeCall) -> dict[str, Any]:
    return {"addresses": addresses(find(call, server_id))}


@router.get("/servers/{server_id}/ips/{network}")
def ips_of_network(server_id: str, network: str, call: ComputeCall) -> dict[str, Any]:
    known = addresses(find(call, server_id))
    if network not in known:
        raise NotFound(f"Server {server_id} has no network {network!r}.")
    return {network: known[network]}


@router.get("/servers/{server_id}/os-security-groups")
def security_groups(server_id: str, call: ComputeCall) -> dict[str, Any]:
    find(call, server_id)
    return {"security_groups": []}
