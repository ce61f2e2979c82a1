"""Which servers a list shows: the query parameters and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fastapi import Request

from jetbridge.api.call import Call
from jetbridge.api.paging import MAX_LIMIT, STRICT_SINCE
from jetbridge.api.patterns import check_pattern
from jetbridge.api.server_views import states_of
from jetbridge.api.times import parse_time
from jetbridge.db.paging import Direction, Page
from jetbridge.db.servers import ServerFilter
from jetbridge.errors import Forbidden, Invalid
from jetbridge.model.server import PowerState, TaskState, VmState

_OWNERS = frozenset(
    """all_tenants all_projects changes-since changes-before deleted flavor image ip ip6 limit locked marker name
    not-tags not-tags-any reservation_id sort_dir sort_key status tags tags-any uuid""".split()  # noqa: SIM905
)
_ADMINS = frozenset(
    """access_ip_v4 access_ip_v6 availability_zone config_drive created_at description display_description
    display_name host hostname image_ref instance_type_id kernel_id key_name launch_index launched_at locked_by node
    power_state progress project_id ramdisk_id root_device_name task_state tenant_id terminated_at user_id
    vm_state""".split()  # noqa: SIM905
)
_OWNERS_SINCE_83 = frozenset(("availability_zone", "key_name", "power_state", "task_state", "vm_state"))
_SINCE: Mapping[str, int] = {
    "tags": 26,
    "tags-any": 26,
    "not-tags": 26,
    "not-tags-any": 26,
    "changes-before": 66,
    "locked": 73,
}
_NOT_KEPT = frozenset(
    """access_ip_v4 access_ip_v6 config_drive created_at description display_description instance_type_id ip ip6
    kernel_id launch_index launched_at locked_by progress ramdisk_id root_device_name terminated_at""".split()  # noqa: SIM905
)
"""Filters of the Compute API that can't be asked here: refused by name instead of silently showing everything."""

PARAMETERS = (_OWNERS | _ADMINS) - _NOT_KEPT
"""Every query parameter of a list of servers, whoever asks and at whatever version."""

SORT_KEYS: Mapping[str, str] = {
    **{
        name: name
        for name in """created_at updated_at launched_at terminated_at display_name display_description uuid host node
        hostname vm_state task_state power_state key_name availability_zone project_id user_id launch_index""".split()  # noqa: SIM905
    },
    "name": "display_name",
    "image_ref": "image_ref",
    "tenant_id": "project_id",
    "host": "host",
}
_ADMIN_SORT_KEYS = frozenset({"host", "node"})


class Filters:
    """The parameters of one request, each taken at most once (the last one counts, as clients expect)."""

    def __init__(self, call: Call, request: Request) -> None:
        self.call = call
        self.all_values: dict[str, list[str]] = {}
        for key, value in request.query_params.multi_items():
            self.all_values.setdefault(key, []).append(value)
        self.names = self._allowed_names()

    def _allowed_names(self) -> frozenset[str]:
        names = _OWNERS
        if self.call.allowed("os_compute_api:servers:allow_all_filters"):
            names |= _ADMINS
        elif self.call.at_least(83):
            names |= _OWNERS_SINCE_83
        names -= {name for name, minor in _SINCE.items() if not self.call.at_least(minor)}
        unknown = sorted(set(self.all_values) - names - _ADMINS)
        if unknown and self.call.at_least(STRICT_SINCE):
            raise Invalid(
                f"Additional properties are not allowed ({unknown[0]!r} was unexpected): leave the query parameter out."
            )
        refused = sorted(set(self.all_values) & names & _NOT_KEPT)
        if refused:
            raise Invalid(f"Servers can't be filtered by {refused[0]!r}: leave the query parameter out.")
        return names

    def text(self, *names: str) -> str | None:
        for name in names:
            if name in self.names and name in self.all_values:
                return self.all_values[name][-1]
        return None

    def texts(self, name: str) -> list[str]:
        return self.all_values.get(name, []) if name in self.names else []

    def boolean(self, name: str, empty: bool = True) -> bool | None:
        text = self.text(name)
        if text is None:
            return None
        word = text.strip().lower()
        if word in ("1", "t", "true", "on", "y", "yes") or (not word and empty):
            return True
        if word in ("0", "f", "false", "off", "n", "no"):
            return False
        raise Invalid(f"Invalid value {text!r} for the query parameter {name!r}: use true or false.")

    def time(self, name: str) -> datetime | None:
        return parse_time(name, self.text(name))

    def tags(self, name: str) -> frozenset[str] | None:
        text = self.text(name)
        return None if text is None else frozenset(tag for tag in text.split(",") if tag)


def server_filter(filters: Filters) -> ServerFilter | None:
    """None: nothing can match (a status that doesn't exist, before 2.38). Raises ``Invalid``, ``Forbidden``."""
    vm_states, task_states = _states(filters)
    if vm_states is not None and not vm_states:
        return None
    power_state = filters.text("power_state")
    since = filters.time("changes-since")
    uuid = filters.text("uuid")
    return ServerFilter(
        project_id=_project(filters),
        user_id=filters.text("user_id"),
        name_pattern=check_pattern("name", filters.text("name", "display_name")),
        uuids=None if uuid is None else frozenset(uuid.split(",")),
        host=filters.text("host"),
        node=filters.text("node"),
        vm_states=vm_states,
        task_states=task_states,
        power_state=None if power_state is None else _power_state(power_state),
        flavorid=_last_segment(filters.text("flavor")),
        image_ref=_last_segment(filters.text("image", "image_ref")),
        key_name=filters.text("key_name"),
        hostname=filters.text("hostname"),
        availability_zone=filters.text("availability_zone"),
        reservation_id=filters.text("reservation_id"),
        locked=filters.boolean("locked"),
        changes_since=since,
        changes_before=filters.time("changes-before"),
        tags=filters.tags("tags"),
        tags_any=filters.tags("tags-any"),
        not_tags=filters.tags("not-tags"),
        not_tags_any=filters.tags("not-tags-any"),
        deleted=_deleted(filters, since, vm_states),
    )


def _project(filters: Filters) -> str | None:
    """None: servers of all projects."""
    call = filters.call
    everybody = filters.boolean("all_tenants") or filters.boolean("all_projects")
    if not everybody:
        return call.context.project
    call.require("os_compute_api:servers:index:get_all_tenants")
    return filters.text("project_id", "tenant_id")


def _deleted(filters: Filters, since: datetime | None, vm_states: frozenset[VmState] | None) -> bool | None:
    if vm_states == frozenset({VmState.DELETED}):
        return True
    wanted = filters.boolean("deleted")
    if filters.call.context.is_admin and wanted is not None:
        return wanted
    # Who polls for changes wants to learn of deletions too.
    return None if since is not None else False


def _states(filters: Filters) -> tuple[frozenset[VmState] | None, frozenset[TaskState | None] | None]:
    vm_states: set[VmState] | None = None
    tasks: set[TaskState | None] | None = None
    words = filters.texts("status")
    for word in words:
        states = states_of(word)
        if states is None:
            if filters.call.at_least(38):
                raise Invalid(f"Invalid value {word!r} for the query parameter 'status': use a status such as ACTIVE.")
            vm_states = vm_states or set()
            continue
        state, with_tasks = states
        if state is VmState.DELETED and not filters.call.context.is_admin:
            raise Forbidden("Only administrators may list deleted instances")
        if tasks is not None and tasks != set(with_tasks):
            raise Invalid(f"The statuses {', '.join(words)} can't be asked together: ask one at a time.")
        vm_states = {*(vm_states or ()), state}
        tasks = set(with_tasks)
    vm_state, task_state = filters.text("vm_state"), filters.text("task_state")
    if vm_state is not None:
        asked = {state for state in VmState if state == vm_state}
        vm_states = asked if vm_states is None else vm_states & asked
    if task_state is not None:
        named: set[TaskState | None] = {state for state in TaskState if state == task_state}
        if task_state.lower() in ("none", ""):
            named = {None}
        tasks = named if tasks is None else tasks & named
        if not tasks:
            vm_states = set()
    return (
        None if vm_states is None else frozenset(vm_states),
        None if tasks is None else frozenset(tasks),
    )


def _power_state(text: str) -> PowerState:
    by_word = {str(int(state)): state for state in PowerState}
    if text not in by_word:
        raise Invalid(f"Invalid value {text!r} for the query parameter 'power_state': use {', '.join(by_word)}.")
    return by_word[text]


def _last_segment(text: str | None) -> str | None:
    """Clients may give a URL instead of an id."""
    return None if text is None else text.rstrip("/").rpartition("/")[2]


def server_page(filters: Filters) -> Page:
    """One row more than the page holds is asked. Raises ``Invalid``."""
    limit = filters.text("limit")
    if limit is not None and not re.fullmatch(r"\d{1,9}", limit, re.ASCII):
        raise Invalid(f"Invalid value {limit!r} for the query parameter 'limit': use a whole number from 0 on.")
    return Page(
        limit=min(MAX_LIMIT if limit is None else int(limit), MAX_LIMIT) + 1,
        marker=filters.text("marker"),
        sort=tuple(_sort(filters, filters.texts("sort_key"), filters.texts("sort_dir"))),
    )


def _sort(filters: Filters, keys: Sequence[str], directions: Sequence[str]) -> list[tuple[str, Direction]]:
    pairs: list[tuple[str, Direction]] = []
    for position, key in enumerate(keys):
        known: dict[str, Any] = {
            name: column
            for name, column in SORT_KEYS.items()
            if name not in _ADMIN_SORT_KEYS or filters.call.context.is_admin
        }
        if key not in known:
            raise Invalid(f"Invalid sort_key={key!r}: use one of {', '.join(sorted(known))}.")
        direction = directions[min(position, len(directions) - 1)] if directions else "desc"
        if direction not in ("asc", "desc"):
            raise Invalid(f"Invalid sort_dir={direction!r}: use asc or desc.")
        pairs.append((known[key], "asc" if direction == "asc" else "desc"))
    return pairs
