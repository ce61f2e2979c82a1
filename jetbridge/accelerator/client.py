"""The client of an accelerator service, the embedded one or a Cyborg at a URL: the calls of a Compute service.

Source: Accelerator API v2 and nova.accelerator.cyborg. A call that the service refuses is an "invalid response", one that doesn't reach it
"could not communicate".
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from keystoneauth1 import exceptions, noauth
from keystoneauth1.adapter import Adapter
from requests import Response

from jetbridge.accelerator.service import Binding
from jetbridge.errors import AcceleratorRequestBindingFailed, AcceleratorRequestOpFailed, DeviceProfileError
from jetbridge.journey.seams import Seams
from jetbridge.model.accelerator import ArqState, DeviceProfile
from jetbridge.model.context import RequestContext
from jetbridge.model.events import Seam

logger = logging.getLogger(__name__)

TARGET = "accelerator"
PROJECT_SINCE = "2.1"
"""The microversion since which a request can be bound for a project (Cyborg 5, Victoria)."""


@dataclass(frozen=True)
class BoundArq:
    """A request as the service answers it. ``attach_info`` is its handle's, ``handle_uuid`` the handle's own (of a mediated device: its)."""

    uuid: str
    state: ArqState
    profile: str
    group_id: int
    hostname: str | None = None
    rp_uuid: str | None = None
    instance_uuid: str | None = None
    project_id: str | None = None
    attach_type: str | None = None
    attach_info: Mapping[str, str] = field(default_factory=dict)
    handle_uuid: str | None = None


class _Refused(Exception):
    """``why``: what the operation's error says."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.status = status


@dataclass(frozen=True)
class AcceleratorClient:
    """One for a whole process, used from many threads; ``by`` says for whom a request is made."""

    adapter: Adapter
    seams: Seams = field(default_factory=Seams)
    source: str = "jetbridge"
    request_id: str | None = None
    server: str | None = None

    def by(self, source: str, context: RequestContext | None = None, server: str | None = None) -> AcceleratorClient:
        """The same client, whose requests are told as ``source``'s, for that request and server."""
        return replace(self, source=source, request_id=context.request_id if context else None, server=server)

    @property
    def is_anonymous(self) -> bool:
        """We don't say who we are."""
        return self.adapter.session is None or isinstance(self.adapter.session.auth, noauth.NoAuth)

    def project(self) -> str | None:
        """Our own project, which a request belongs to until it is bound for a server's; None: who we say we are says nothing of one."""
        try:
            found = self.adapter.get_project_id()
        except exceptions.ClientException:
            return None
        return None if found is None else str(found)

    def profile(self, name: str) -> DeviceProfile:
        """Raises ``DeviceProfileError`` unless there is exactly one of that name."""
        try:
            answer = self._send("GET", "/device_profiles", params={"name": name})
        except _Refused as refused:
            raise DeviceProfileError(name=name, reason=refused.why) from refused
        # The service reads a comma as several names.
        found = [each for each in answer.get("device_profiles", []) if each.get("name", name) == name]
        if len(found) != 1:
            got = (
                "nothing: make it with `openstack accelerator device profile create`" if not found else str(len(found))
            )
            raise DeviceProfileError(name=name, reason=f"expected one profile of that name, got {got}")
        (one,) = found
        return DeviceProfile(
            uuid=one["uuid"], name=one["name"], groups=tuple(one["groups"]), description=one.get("description")
        )

    def create(self, profile: str) -> tuple[BoundArq, ...]:
        """A request for each device that the profile asks for. Raises ``AcceleratorRequestOpFailed``, also when there are none."""
        try:
            made = self._send("POST", "/accelerator_requests", body={"device_profile_name": profile}).get("arqs")
        except _Refused as refused:
            raise AcceleratorRequestOpFailed(op="create", reason=refused.why) from refused
        if not made:
            raise AcceleratorRequestOpFailed(op="create", reason=f"device profile {profile!r} gave none")
        return _arqs("create", made)

    def bind(self, bindings: Mapping[str, Binding]) -> None:
        """All of a server's requests in one call; what comes of it is told by events. Raises ``AcceleratorRequestBindingFailed``."""
        body = {uuid: _patch(binding) for uuid, binding in bindings.items()}
        projects = any(binding.project_id for binding in bindings.values())
        try:
            self._send("PATCH", "/accelerator_requests", body=body, microversion=PROJECT_SINCE if projects else None)
        except _Refused as refused:
            raise AcceleratorRequestBindingFailed(
                arqs=", ".join(bindings), uuids=tuple(bindings), reason=refused.why
            ) from refused

    def of_server(self, instance_uuid: str, *, only_resolved: bool = False) -> tuple[BoundArq, ...]:
        """Raises ``AcceleratorRequestOpFailed``, also when the server has none. ``only_resolved``: of those it has, those whose binding has
        ended; maybe none."""
        try:
            found = self._send("GET", "/accelerator_requests", params={"instance": instance_uuid}).get("arqs")
        except _Refused as refused:
            raise AcceleratorRequestOpFailed(op="get", reason=refused.why) from refused
        if not found:
            raise AcceleratorRequestOpFailed(op="get", reason=f"server {instance_uuid} has none")
        arqs = _arqs("get", found)
        return tuple(arq for arq in arqs if arq.state.resolved) if only_resolved else arqs

    def unbound(self) -> tuple[BoundArq, ...]:
        """Those that no server has, of the projects that we see. Raises ``AcceleratorRequestOpFailed``."""
        try:
            found = self._send("GET", "/accelerator_requests").get("arqs", [])
        except _Refused as refused:
            raise AcceleratorRequestOpFailed(op="get", reason=refused.why) from refused
        return tuple(arq for arq in _arqs("get", found) if arq.instance_uuid is None)

    def get(self, uuid: str) -> BoundArq | None:
        """None: there is no such request. Raises ``AcceleratorRequestOpFailed``."""
        try:
            return _arqs("get", [self._send("GET", f"/accelerator_requests/{uuid}")])[0]
        except _Refused as refused:
            if refused.status == 404:
                return None
            raise AcceleratorRequestOpFailed(op="get", reason=refused.why) from refused

    def delete_of_server(self, instance_uuid: str) -> None:
        """Raises ``AcceleratorRequestOpFailed``; a server without any is no error."""
        try:
            self._send("DELETE", "/accelerator_requests", params={"instance": instance_uuid})
        except _Refused as refused:
            raise AcceleratorRequestOpFailed(op="delete", reason=refused.why) from refused

    def delete(self, uuids: Sequence[str]) -> None:
        """A failure is only logged."""
        try:
            self._send("DELETE", "/accelerator_requests", params={"arqs": ",".join(uuids)})
        except _Refused as refused:
            logger.warning(
                "Failed to delete accelerator requests %s: %s",
                ", ".join(uuids),
                refused.why,
                extra={"request_id": self.request_id, "server": self.server},
            )

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        microversion: str | None = None,
    ) -> dict[str, Any]:
        with self.seams.crossing(
            Seam.REST, self.source, TARGET, f"{method} {path}", request_id=self.request_id, server=self.server
        ) as crossing:
            crossing.essentials.update(params or {})
            try:
                answer: Response = self.adapter.request(
                    path,
                    method,
                    params=dict(params or {}),
                    data=None if body is None else json.dumps(body),
                    headers={"Content-Type": "application/json", "Accept": "application/json"},
                    microversion=microversion,
                    global_request_id=self.request_id,
                    log=False,
                )
            except exceptions.ClientException as error:
                said = (str(error).splitlines() or [type(error).__name__])[0]
                crossing.fail("could not communicate", said)
                raise _Refused(f"could not communicate with the accelerator service: {said}") from error
            crossing.essentials["status"] = str(answer.status_code)
            if answer.status_code >= 400:
                crossing.fail(f"HTTP {answer.status_code}")
                raise _Refused(
                    f"invalid response of the accelerator service: {answer.status_code} {_said(answer)}",
                    answer.status_code,
                )
            content = _content(answer)
            if arqs := content.get("arqs"):
                crossing.essentials["state"] = ", ".join(sorted({str(arq.get("state")) for arq in arqs}))
            return content


def _patch(binding: Binding) -> list[dict[str, str]]:
    values = {
        "hostname": binding.hostname,
        "device_rp_uuid": binding.device_rp_uuid,
        "instance_uuid": binding.instance_uuid,
    }
    if binding.project_id is not None:
        values["project_id"] = binding.project_id
    return [{"path": f"/{name}", "op": "add", "value": value} for name, value in values.items()]


def _content(answer: Response) -> dict[str, Any]:
    if not answer.content or answer.status_code == 204:
        return {}
    try:
        content = answer.json()
    except ValueError as error:
        raise _Refused(f"invalid response of the accelerator service: not JSON: {answer.text[:100]!r}") from error
    return content if isinstance(content, dict) else {}


def _said(answer: Response) -> str:
    """What the service says is wrong, in whatever shape."""
    try:
        error = answer.json().get("error_message", {})
        error = json.loads(error) if isinstance(error, str) else error
        return str(error.get("faultstring") or answer.reason)
    except (ValueError, AttributeError):
        return answer.text.strip()[:200] or str(answer.reason)


def _arqs(op: str, content: Iterable[Mapping[str, Any]]) -> tuple[BoundArq, ...]:
    try:
        return tuple(_arq(each) for each in content)
    except (KeyError, TypeError, ValueError) as error:
        raise AcceleratorRequestOpFailed(op=op, reason=f"the answer makes no sense: {error!r}") from error


def _arq(content: Mapping[str, Any]) -> BoundArq:
    info = content.get("attach_handle_info") or {}
    info = json.loads(info) if isinstance(info, str) else info
    return BoundArq(
        uuid=content["uuid"],
        state=ArqState(content["state"]),
        profile=content["device_profile_name"],
        group_id=int(content["device_profile_group_id"]),
        hostname=content.get("hostname"),
        rp_uuid=content.get("device_rp_uuid"),
        instance_uuid=content.get("instance_uuid"),
        project_id=content.get("project_id"),
        attach_type=content.get("attach_handle_type") or None,
        attach_info={str(key): str(value) for key, value in info.items() if value is not None},
        handle_uuid=content.get("attach_handle_uuid"),
    )
