"""The Image API, as far as clients need it to manage disk images: /image/v2."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.concurrency import run_in_threadpool

from jetbridge.api import image_views as views
from jetbridge.api.call import ContextOf
from jetbridge.api.services import ApiServices
from jetbridge.errors import Conflict, Forbidden, Invalid, JetbridgeError, NotFound
from jetbridge.image import fields
from jetbridge.image.access import require_change, require_use
from jetbridge.image.query import SORT_KEYS, ImageQuery, select
from jetbridge.image.store import ImageDirectory
from jetbridge.model.image import Image, ImageStatus

LIMIT = 1000
PATCH_TYPES = (
    "application/openstack-images-v2.1-json-patch",
    "application/openstack-images-v2.0-json-patch",
    "application/json-patch+json",
)
_PIECE = 4 * 1024 * 1024


class UnsupportedMediaType(JetbridgeError):
    template = "Content-Type {given!r} is not supported here: send {wanted}"
    http_status = 415


async def patch_operations(request: Request) -> Any:
    """The body of a PATCH, which has a media type of its own."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in PATCH_TYPES:
        raise UnsupportedMediaType(given=given, wanted=PATCH_TYPES[0])
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise Invalid(reason=f"the body is not JSON: {error}") from None


def image_query(request: Request) -> ImageQuery:
    """The list's query parameters. Raises ``Invalid``."""
    query = ImageQuery()
    filters: list[tuple[str, str]] = []
    keys: list[str] = []
    directions: list[str] = []
    for name, value in request.query_params.multi_items():
        match name:
            case "marker":
                query = replace(query, marker=value)
            case "limit":
                if not value.isascii() or not value.isdigit() or int(value[:9]) < 1:
                    raise Invalid(reason=f"limit={value!r} is not a whole number from 1")
                query = replace(query, limit=min(int(value[:9]), LIMIT))
            case "sort":
                parts = [part.partition(":") for part in value.split(",")]
                keys += [key for key, _, _ in parts]
                directions += [direction or "desc" for _, _, direction in parts]
            case "sort_key":
                keys.append(value)
            case "sort_dir":
                directions.append(value)
            case _:
                filters.append((name, value))
    return replace(query, filters=tuple(filters), sort=_sort(keys, directions) or query.sort)


def _sort(keys: list[str], directions: list[str]) -> tuple[tuple[str, bool], ...]:
    for key in keys:
        if key not in SORT_KEYS:
            raise Invalid(reason=f"sort_key={key!r}: use {', '.join(SORT_KEYS)}")
    for direction in directions:
        if direction not in ("asc", "desc"):
            raise Invalid(reason=f"sort_dir={direction!r}: use asc or desc")
    if not keys and not directions:
        return ()
    keys = keys or ["created_at"]
    if len(directions) == 1:
        directions = directions * len(keys)
    directions += ["desc"] * (len(keys) - len(directions))
    return (*((key, way == "asc") for key, way in zip(keys, directions, strict=False)), ("id", directions[0] == "asc"))


def router(services: ApiServices) -> APIRouter:
    """Everything under /image."""
    images = services.images
    routes = APIRouter(prefix="/image", include_in_schema=False)
    _add_documents(routes)
    _add_images(routes, images, services.new_id)
    _add_data(routes, images)
    _add_tags_and_members(routes, images)
    return routes


def _add_documents(routes: APIRouter) -> None:
    @routes.get("")
    @routes.get("/versions")
    def versions(request: Request) -> Response:
        return JSONResponse(views.versions(f"{str(request.base_url).rstrip('/')}/image"), status_code=300)

    @routes.get("/v2")
    def v2(request: Request) -> Any:
        return views.versions(f"{str(request.base_url).rstrip('/')}/image")

    schemas: dict[str, Callable[[], dict[str, Any]]] = {
        "image": views.image_schema,
        "images": views.images_schema,
        "member": views.member_schema,
        "members": views.members_schema,
    }

    @routes.get("/v2/schemas/{name}")
    def schema(name: str) -> Any:
        if name not in schemas:
            raise NotFound(noun="Schema", key=name)
        return schemas[name]()

    @routes.get("/v2/info/import")
    def import_info() -> Any:
        return {"import-methods": {"description": "Import methods available.", "type": "array", "value": []}}

    @routes.get("/v2/info/stores")
    def stores() -> Any:
        return {"stores": [{"id": "file", "default": "true"}]}


def _add_images(routes: APIRouter, images: ImageDirectory, new_id: Callable[[], str]) -> None:
    @routes.get("/v2/images")
    def index(request: Request, context: ContextOf, query: Annotated[ImageQuery, Depends(image_query)]) -> Any:
        listing = select(images.list(), context, query)
        others = [(name, value) for name, value in request.query_params.multi_items() if name != "marker"]
        answer: dict[str, Any] = {
            "images": [views.image_view(image) for image in listing.images],
            "first": f"/v2/images{'?' + urlencode(others) if others else ''}",
            "schema": "/v2/schemas/images",
        }
        if listing.more:
            answer["next"] = f"/v2/images?{urlencode([*others, ('marker', listing.images[-1].id)])}"
        return answer

    @routes.post("/v2/images", status_code=201)
    def create(
        request: Request, response: Response, context: ContextOf, body: Annotated[dict[str, Any], Body()]
    ) -> Any:
        image = images.create(fields.new_image(context, body, new_id()))
        response.headers["Location"] = f"{str(request.base_url).rstrip('/')}/image/v2/images/{image.id}"
        return views.image_view(image)

    @routes.get("/v2/images/{image_id}")
    def show(image_id: str, context: ContextOf) -> Any:
        image = images.get(image_id)
        require_use(context, image)
        return views.image_view(image)

    @routes.patch("/v2/images/{image_id}")
    def update(image_id: str, context: ContextOf, operations: Annotated[Any, Depends(patch_operations)]) -> Any:
        def change(image: Image) -> Image:
            require_change(context, image)
            return fields.patched(context, image, operations)

        return views.image_view(images.update(image_id, change))

    @routes.delete("/v2/images/{image_id}", status_code=204)
    def delete(image_id: str, context: ContextOf) -> None:
        require_change(context, images.get(image_id))
        images.delete(image_id)


def _add_data(routes: APIRouter, images: ImageDirectory) -> None:
    @routes.put("/v2/images/{image_id}/file", status_code=204)
    async def upload(image_id: str, request: Request, context: ContextOf) -> None:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != "application/octet-stream":
            raise UnsupportedMediaType(given=given, wanted="application/octet-stream")
        length = request.headers.get("content-length", "")
        expected = int(length) if length.isdigit() else None
        await run_in_threadpool(lambda: require_change(context, images.get(image_id)))
        taking = await run_in_threadpool(images.begin_upload, image_id, expected)
        try:
            async for piece in _pieces(request.stream()):
                await run_in_threadpool(taking.write, piece)
            await run_in_threadpool(taking.finish)
        finally:
            await run_in_threadpool(taking.close)

    @routes.get("/v2/images/{image_id}/file")
    def download(image_id: str, context: ContextOf) -> Response:
        image = images.get(image_id)
        require_use(context, image)
        if image.status is not ImageStatus.ACTIVE:
            return Response(status_code=204)
        headers = {"Content-MD5": image.checksum} if image.checksum else None
        return FileResponse(images.path(image_id), media_type="application/octet-stream", headers=headers)


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in larger pieces, since each piece costs a change of thread."""
    buffer = bytearray()
    async for chunk in stream:
        buffer += chunk
        if len(buffer) >= _PIECE:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)


def _add_tags_and_members(routes: APIRouter, images: ImageDirectory) -> None:
    def change_tags(image_id: str, context: ContextOf, change: Callable[[Image], tuple[str, ...]]) -> None:
        def apply(image: Image) -> Image:
            require_change(context, image)
            return replace(image, tags=change(image))

        images.update(image_id, apply)

    @routes.put("/v2/images/{image_id}/tags/{tag}", status_code=204)
    def add_tag(image_id: str, tag: str, context: ContextOf) -> None:
        fields.tag(tag)
        change_tags(image_id, context, lambda image: tuple(dict.fromkeys((*image.tags, tag))))

    @routes.delete("/v2/images/{image_id}/tags/{tag}", status_code=204)
    def remove_tag(image_id: str, tag: str, context: ContextOf) -> None:
        def without(image: Image) -> tuple[str, ...]:
            if tag not in image.tags:
                raise NotFound(noun=f"The tag of image {image_id}", key=tag)
            return tuple(each for each in image.tags if each != tag)

        change_tags(image_id, context, without)

    @routes.get("/v2/images/{image_id}/members")
    def members(image_id: str, context: ContextOf) -> Any:
        require_use(context, images.get(image_id))
        return {"members": [], "schema": "/v2/schemas/members"}

    @routes.post("/v2/images/{image_id}/members")
    def add_member(image_id: str, context: ContextOf) -> None:
        require_change(context, images.get(image_id))
        raise Forbidden(reason="images can't be shared with single projects: set visibility=community or public")

    @routes.post("/v2/images/{image_id}/import")
    def import_image(image_id: str, context: ContextOf) -> None:
        require_change(context, images.get(image_id))
        raise Conflict("Images aren't imported from elsewhere: upload the data with PUT /v2/images/ID/file")
