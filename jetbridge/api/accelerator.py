"""The Accelerator API, v2: /accelerator/v2. What python-cyborgclient, openstacksdk and a Compute service ask of Cyborg."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, Field, StringConstraints

from jetbridge.accelerator.service import AcceleratorService, Binding
from jetbridge.api import fields
from jetbridge.api.accelerator_views import arq_view, deployable_view, device_view, profile_view
from jetbridge.api.call import ContextOf
from jetbridge.api.fields import LongDescription, Name, Text, Uuid, Whole, is_uuid
from jetbridge.errors import Invalid, NotFound

PREFIX = "/accelerator"
HEADER = "OpenStack-API-Version"
OLDEST, NEWEST = 0, 3
"""Minor numbers: 2.1 binds for a project, 2.2 finds profiles by name, 2.3 shows the status of devices. All of it is answered at every one."""


class VersionOutOfRange(Invalid):
    template = "Version {value} is not supported by the Accelerator API. Minimum is 2.0 and maximum is 2.3."
    http_status = 406


class NewProfile(fields.Body):
    name: Name
    groups: Annotated[list[dict[Text, Text | Whole]], Field(max_length=64)]
    description: LongDescription | None = None
    uuid: Uuid | None = None


class NewArqs(fields.Body):
    device_profile_name: Name
    device_profile_group_id: Annotated[int, Field(ge=0)] | None = None
    image_uuid: Uuid | None = None


def _path(text: str) -> str:
    name = text.lstrip("/")
    if name not in ("hostname", "device_rp_uuid", "instance_uuid", "project_id"):
        raise ValueError("Write /hostname, /device_rp_uuid, /instance_uuid or /project_id")
    return name


class Patch(fields.Body):
    path: Annotated[Text, AfterValidator(_path)]
    op: Literal["add", "remove"]
    value: Annotated[Text, StringConstraints(min_length=1, max_length=255)] | None = None


Patches = Annotated[dict[Uuid, Annotated[list[Patch], Field(min_length=1)]], Field(min_length=1, max_length=64)]


def router(service: AcceleratorService) -> APIRouter:
    """Everything under /accelerator."""
    routes = APIRouter(prefix=PREFIX, include_in_schema=False, dependencies=[Depends(_version)])
    _add_documents(routes)
    _add_profiles(routes, service)
    _add_requests(routes, service)
    _add_devices(routes, service)
    return routes


def _version(request: Request, response: Response) -> None:
    """Microversions differ in nothing that an old client could stumble over, so that the one asked for is only told back."""
    minor = OLDEST
    for part in request.headers.get(HEADER, "").split(","):
        service, _, asked = part.strip().partition(" ")
        if service == "accelerator" and asked:
            match = re.fullmatch(r"2\.(\d{1,4})", asked)
            minor = NEWEST if asked == "latest" else int(match[1]) if match else NEWEST + 1
            if minor > NEWEST:
                raise VersionOutOfRange(value=asked)
    response.headers[HEADER] = f"accelerator 2.{minor}"
    response.headers["Vary"] = HEADER


def _add_documents(routes: APIRouter) -> None:
    def document(request: Request) -> dict[str, Any]:
        href = f"{_url(request)}/"
        return {
            "id": "v2",
            "status": "CURRENT",
            "min_version": f"2.{OLDEST}",
            "max_version": f"2.{NEWEST}",
            "links": [{"rel": "self", "href": href}],
        }

    @routes.get("")
    def versions(request: Request) -> Any:
        return {"name": "Jetbridge", "versions": [document(request)], "default_version": document(request)}

    @routes.get("/v2")
    def version(request: Request) -> Any:
        return document(request)


def _add_profiles(routes: APIRouter, service: AcceleratorService) -> None:
    @routes.get("/v2/device_profiles")
    def index(request: Request, name: str | None = None) -> Any:
        found = service.profiles(None if name is None else name.split(","))
        return {"device_profiles": [profile_view(profile, _url(request)) for profile in found]}

    @routes.get("/v2/device_profiles/{key}")
    def show(key: str, request: Request) -> Any:
        return {"device_profile": profile_view(service.profile(key), _url(request))}

    @routes.post("/v2/device_profiles", status_code=201)
    def create(
        new: Annotated[list[NewProfile], Body(min_length=1, max_length=1)], request: Request, context: ContextOf
    ) -> Any:
        wanted = new[0]
        groups = [{key: str(value) for key, value in group.items()} for group in wanted.groups]
        made = service.create_profile(context, wanted.name, groups, wanted.description, wanted.uuid)
        return profile_view(made, _url(request))

    @routes.delete("/v2/device_profiles/{key}", status_code=204)
    def delete(key: str, context: ContextOf) -> None:
        service.delete_profiles(context, [key])

    @routes.delete("/v2/device_profiles", status_code=204)
    def delete_some(value: str, context: ContextOf) -> None:
        service.delete_profiles(context, value.split(","))


def _add_requests(routes: APIRouter, service: AcceleratorService) -> None:
    @routes.get("/v2/accelerator_requests")
    def index(
        request: Request,
        context: ContextOf,
        instance: Annotated[Uuid | None, Query()] = None,
        bind_state: Annotated[Literal["resolved"] | None, Query()] = None,
    ) -> Any:
        found = service.list(context, instance)
        if bind_state is not None:
            if instance is not None and not all(arq.state.resolved for arq in found):
                return Response(status_code=423)  # Locked: ask again when all of them are
            found = tuple(arq for arq in found if arq.state.resolved)
        return {"arqs": [arq_view(arq, _url(request)) for arq in found]}

    @routes.get("/v2/accelerator_requests/{uuid}")
    def show(uuid: str, request: Request, context: ContextOf) -> Any:
        return arq_view(service.get(context, _known(uuid)), _url(request))

    @routes.post("/v2/accelerator_requests", status_code=201)
    def create(new: NewArqs, request: Request, context: ContextOf) -> Any:
        made = service.create(context, new.device_profile_name, new.device_profile_group_id)
        return {"arqs": [arq_view(arq, _url(request)) for arq in made]}

    @routes.patch("/v2/accelerator_requests", status_code=202)
    def patch(patches: Annotated[Patches, Body()], context: ContextOf) -> Any:
        service.bind(context, {uuid: _binding(uuid, each) for uuid, each in patches.items()})

    @routes.patch("/v2/accelerator_requests/{uuid}", status_code=202)
    def patch_one(uuid: str, patches: Annotated[Patches, Body()], request: Request, context: ContextOf) -> Any:
        if list(patches) != [_known(uuid)]:
            raise Invalid(f"The body names accelerator request {', '.join(patches)}, the URL {uuid}: name the same.")
        service.bind(context, {uuid: _binding(uuid, patches[uuid])})
        return arq_view(service.get(context, uuid), _url(request))

    @routes.delete("/v2/accelerator_requests", status_code=204)
    def delete(
        context: ContextOf,
        arqs: Annotated[str | None, Query()] = None,
        instance: Annotated[Uuid | None, Query()] = None,
    ) -> None:
        if (arqs is None) == (instance is None):
            raise Invalid("Give either arqs=UUID,UUID,... or instance=UUID as a query parameter.")
        if arqs is not None:
            service.delete(context, [_known(uuid) for uuid in arqs.split(",")])
        elif instance is not None:
            service.delete_of_server(context, instance)

    @routes.delete("/v2/accelerator_requests/{uuid}", status_code=204)
    def delete_one(uuid: str, context: ContextOf) -> None:
        service.delete(context, [_known(uuid)])


def _add_devices(routes: APIRouter, service: AcceleratorService) -> None:
    @routes.get("/v2/devices")
    def devices(
        request: Request,
        context: ContextOf,
        type: str | None = None,
        vendor: str | None = None,
        hostname: str | None = None,
    ) -> Any:
        found = service.devices(device_type=type, vendor=vendor, hostname=hostname)
        return {"devices": [device_view(device, _url(request)) for device in found]}

    @routes.get("/v2/devices/{uuid}")
    def device(uuid: str, request: Request, context: ContextOf) -> Any:
        return device_view(service.device(_known(uuid)), _url(request))

    @routes.post("/v2/devices/{uuid}/{action}")
    def switch(uuid: str, action: Literal["enable", "disable"], context: ContextOf) -> Any:
        service.enable(context, _known(uuid), action == "enable")
        return JSONResponse(None)

    @routes.get("/v2/deployables")
    def deployables(request: Request, context: ContextOf) -> Any:
        return {"deployables": [deployable_view(each, _url(request)) for each in service.devices()]}

    @routes.get("/v2/deployables/{uuid}")
    def deployable(uuid: str, request: Request, context: ContextOf) -> Any:
        return deployable_view(service.device(_known(uuid)), _url(request))


def _url(request: Request) -> str:
    return f"{str(request.base_url).rstrip('/')}{PREFIX}/v2"


def _known(uuid: str) -> str:
    """A UUID in its usual form; what is none can't be found."""
    if not is_uuid(uuid):
        raise NotFound(noun="UUID", key=uuid)
    return fields.canonical_uuid(uuid)


def _binding(uuid: str, patches: Sequence[Patch]) -> Binding | None:
    """Where to bind to; None: to nothing any more. Raises ``Invalid``."""
    operations = {patch.op for patch in patches}
    if len(operations) > 1:
        raise Invalid(f"Accelerator request {uuid}: every op must be add, or every op remove.")
    if operations == {"remove"}:
        return None
    values: Mapping[str, str | None] = {patch.path: patch.value for patch in patches}
    missing = [name for name in ("hostname", "device_rp_uuid", "instance_uuid") if not values.get(name)]
    if missing:
        raise Invalid(f"Accelerator request {uuid}: add {', '.join(missing)} with a value, too: all three are needed.")
    for name in ("device_rp_uuid", "instance_uuid"):
        if not is_uuid(str(values[name])):
            raise Invalid(f"Accelerator request {uuid}: {name}={values[name]!r} is not a UUID.")
    return Binding(
        str(values["hostname"]), str(values["device_rp_uuid"]), str(values["instance_uuid"]), values.get("project_id")
    )
