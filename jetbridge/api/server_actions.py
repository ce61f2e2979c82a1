"""What can be done to a server: ``POST /servers/{id}/action`` with one key that names the action.

The check of the server's state and the new task state are one statement, so that of two callers one wins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from jetbridge.accelerator.profile import PROFILE
from jetbridge.api import fields
from jetbridge.api.call import Call, ComputeCall
from jetbridge.api.fields import MAX_INT, Description
from jetbridge.api.microversions import check_request
from jetbridge.api.servers import SOURCE, find
from jetbridge.api.validation import describe_validation, shorten
from jetbridge.db import actions
from jetbridge.db import servers as db
from jetbridge.db.connection import Connection
from jetbridge.errors import (
    Conflict,
    ForbiddenPortsWithAccelerator,
    ForbiddenWithAccelerators,
    HypervisorError,
    Invalid,
    ServerInvalidState,
    ServiceUnavailable,
)
from jetbridge.model.server import Server, TaskState, VmState
from jetbridge.pci.port import ACCELERATOR_VNICS

logger = logging.getLogger(__name__)
router = APIRouter(tags=["servers"])


@dataclass(frozen=True)
class Transition:
    """From which states an action may start, the task it sets, and the call to the host's agent.

    ``name`` is the action's name in messages and in the server's history."""

    name: str
    vm_states: frozenset[VmState]
    task_states: frozenset[TaskState | None]
    task: TaskState
    method: str


_IDLE: frozenset[TaskState | None] = frozenset({None})
START = Transition("start", frozenset({VmState.STOPPED}), _IDLE, TaskState.POWERING_ON, "start_server")
STOP = Transition("stop", frozenset({VmState.ACTIVE, VmState.ERROR}), _IDLE, TaskState.POWERING_OFF, "stop_server")
SOFT_REBOOT = Transition("reboot", frozenset({VmState.ACTIVE}), _IDLE, TaskState.REBOOTING, "reboot_server")
HARD_REBOOT = Transition(
    "reboot",
    frozenset({VmState.ACTIVE, VmState.STOPPED, VmState.ERROR}),
    # A hard reboot is the way out when a soft one hangs.
    frozenset({None, TaskState.REBOOTING, TaskState.REBOOTING_HARD}),
    TaskState.REBOOTING_HARD,
    "reboot_server",
)


class Reboot(fields.Body):
    type: Annotated[
        str,
        BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value),
        StringConstraints(pattern="^(SOFT|HARD)$"),
    ]


def _length(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and not value.lstrip("-").isascii()):
        raise ValueError("This is not a number of lines: write a whole number from -1 on")
    return value


class ConsoleOutput(fields.Body):
    """``length``: that many last lines; None and -1: all."""

    length: Annotated[int, BeforeValidator(_length), Field(ge=-1, le=MAX_INT)] | None = None


class Lock(fields.Body):
    locked_reason: Annotated[Description, StringConstraints(min_length=1)] | None = None


def _no_argument(name: str, argument: Any) -> None:
    if argument not in (None, {}):
        raise Invalid(f"Invalid input for field/attribute {name}. Value: {shorten(argument)}. Send null.")


def _parse(model: type[BaseModel], name: str, argument: Any) -> Any:
    try:
        return model.model_validate({} if argument is None else argument)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", name, *problem["loc"])} for problem in error.errors()]
        raise Invalid(describe_validation(problems, body={name: argument})) from None


def _begin(call: Call, server_id: str, transition: Transition) -> Server:
    def write(conn: Connection) -> Server:
        server = find(call, server_id, conn)
        refuse_locked(call, server)
        if server.host is None and server.vm_state is VmState.ERROR:
            raise Conflict(f"Instance {server.uuid} was never placed on a host: it can only be deleted.")
        matched = db.update(
            conn,
            server.uuid,
            expected_vm_states=transition.vm_states,
            expected_task_states=transition.task_states,
            task_state=transition.task,
        )
        if not matched:
            raise wrong_state(server, transition)
        actions.start(
            conn,
            server.uuid,
            transition.name,
            call.context.request_id,
            user_id=call.context.user,
            project_id=call.context.project,
        )
        return server

    return call.services.database.write(write)


def wrong_state(server: Server, transition: Transition) -> ServerInvalidState:
    if server.vm_state not in transition.vm_states:
        attr, state = "vm_state", str(server.vm_state)
    else:
        attr, state = "task_state", str(server.task_state)
    return ServerInvalidState(action=transition.name, server=server.uuid, attr=attr, state=state)


def refuse_locked(call: Call, server: Server) -> None:
    """Raises ``Conflict`` for everyone but admins."""
    if server.locked and not call.context.is_admin:
        raise Conflict(f"Instance {server.uuid} is locked: unlock it first.")


def _run(call: Call, server_id: str, transition: Transition, **payload: Any) -> Response:
    server = _begin(call, server_id, transition)
    assert server.host is not None
    logger.info("[%s] server %s: %s accepted", call.context.request_id, server.uuid, transition.name)
    try:
        call.services.bus.cast(
            call.context,
            "compute",
            transition.method,
            {"server_uuid": server.uuid, **payload},
            source=SOURCE,
            server=server.host,
        )
    except ServiceUnavailable as error:
        message = error.message

        def give_up(conn: Connection) -> None:
            db.set_task_state(conn, server.uuid, {transition.task}, server.task_state)
            actions.finish(conn, server.uuid, call.context.request_id, error=message)

        call.services.database.write(give_up)
        raise
    return Response(status_code=202)


def _start(call: Call, server_id: str, argument: Any) -> Response:
    _no_argument("os-start", argument)
    return _run(call, server_id, START)


def _stop(call: Call, server_id: str, argument: Any) -> Response:
    _no_argument("os-stop", argument)
    return _run(call, server_id, STOP)


def _reboot(call: Call, server_id: str, argument: Any) -> Response:
    hard = _parse(Reboot, "reboot", argument).type == "HARD"
    return _run(call, server_id, HARD_REBOOT if hard else SOFT_REBOOT, hard=hard)


def _console_output(call: Call, server_id: str, argument: Any) -> Response:
    length = _parse(ConsoleOutput, "os-getConsoleOutput", argument).length
    server = find(call, server_id)
    if server.host is None:
        raise Conflict(f"Instance {server.uuid} is not ready: it is on no host yet.")
    try:
        answer = call.services.bus.call(
            call.context,
            "compute",
            "console_output",
            {"server_uuid": server.uuid, "length": None if length == -1 else length},
            source=SOURCE,
            server=server.host,
        )
    except HypervisorError as error:
        raise ServiceUnavailable(reason=error.message) from error
    return JSONResponse({"output": answer["output"]})


def _lock(call: Call, server_id: str, argument: Any) -> Response:
    wanted = _parse(Lock, "lock", argument)
    check_request("lock", wanted.model_fields_set, call.version)
    return _set_lock(call, server_id, locked=True, reason=wanted.locked_reason)


def _unlock(call: Call, server_id: str, argument: Any) -> Response:
    _no_argument("unlock", argument)
    return _set_lock(call, server_id, locked=False, reason=None)


def _set_lock(call: Call, server_id: str, *, locked: bool, reason: str | None) -> Response:
    def write(conn: Connection) -> None:
        server = find(call, server_id, conn)
        db.update(conn, server.uuid, locked=locked, locked_reason=reason)
        name = "lock" if locked else "unlock"
        context = call.context
        actions.start(conn, server.uuid, name, context.request_id, user_id=context.user, project_id=context.project)
        actions.finish(conn, server.uuid, context.request_id)

    call.services.database.write(write)
    return Response(status_code=202)


ACTIONS: Mapping[str, Callable[[Call, str, Any], Response]] = {
    "os-start": _start,
    "os-stop": _stop,
    "reboot": _reboot,
    "os-getConsoleOutput": _console_output,
    "lock": _lock,
    "unlock": _unlock,
}


NOT_WITH_ACCELERATORS = frozenset({"suspend", "resume", "resize", "migrate", "os-migrateLive"})
"""What can't be done to a server with accelerators: their guests can't be saved, and their devices can't move."""


NOT_WITH_ACCELERATOR_PORTS = NOT_WITH_ACCELERATORS | {"shelve", "shelveOffload", "unshelve", "evacuate"}


def refuse_accelerators(server: Server, action: str) -> None:
    """Raises ``ForbiddenWithAccelerators``, ``ForbiddenPortsWithAccelerator``."""
    profile = server.flavor.extra_specs.get(PROFILE)
    if profile and action in NOT_WITH_ACCELERATORS:
        raise ForbiddenWithAccelerators(action=action, server=server.uuid, profile=profile)
    for nic in server.networks:
        if nic.vnic_type in ACCELERATOR_VNICS and action in NOT_WITH_ACCELERATOR_PORTS:
            raise ForbiddenPortsWithAccelerator(
                action=action, server=server.uuid, port=nic.port_id, fix="delete the server and create it anew"
            )


@router.post(
    "/servers/{server_id}/action",
    status_code=202,
    responses={200: {"description": "The console's output."}, 409: {"description": "The state doesn't allow it."}},
)
def act(
    server_id: str,
    call: ComputeCall,
    body: Annotated[dict[str, Any], Body(examples=[{"os-stop": None}, {"reboot": {"type": "SOFT"}}])],
) -> Response:
    """One key: os-start, os-stop, reboot, os-getConsoleOutput, lock or unlock."""
    if len(body) != 1:
        raise Invalid(f"The body names {len(body)} actions: name exactly one of {', '.join(ACTIONS)}.")
    name, argument = next(iter(body.items()))
    if name in NOT_WITH_ACCELERATOR_PORTS:
        refuse_accelerators(find(call, server_id), name)
    if name not in ACTIONS:
        raise Invalid(f"There is no such action: {name!r}. Use one of {', '.join(ACTIONS)}.")
    return ACTIONS[name](call, server_id, argument)
