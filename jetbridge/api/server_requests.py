"""The body of ``POST /servers``: its fields, and the checks that need nothing but the body."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from jetbridge.api.fields import Body, Description, HostName, Hostname, IpAddress, Line, Metadata, Name, Tag, Text, Uuid
from jetbridge.api.fields import _no_boolean as no_boolean
from jetbridge.api.microversions import Version, check_request
from jetbridge.errors import Invalid

MOST_SERVERS = 1000
MOST_TAGS = 50
NETWORKS_SINCE = 37
UNHELD_HINTS: Mapping[str, str] = {
    "group": "server groups don't exist here",
    "same_host": "no filter honours it",
    "different_host": "no filter honours it",
    "query": "no filter honours it",
    "target_cell": "there are no cells",
    "different_cell": "there are no cells",
    "build_near_host_ip": "no filter honours it",
    "cidr": "no filter honours it",
}
"""Hints of the Compute API that would be accepted and not kept: refused instead."""


def _user_data(text: str) -> str:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("This is not base64: encode the user data as base64") from None
    return text


def _flavor_ref(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _last_segment(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2]


def _unique(tags: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(tags)) != len(tags):
        raise ValueError("The tags are not unique: name each once")
    return tags


def _empty_is_false(value: Any) -> Any:
    return False if value in ("", None) else value


UserData = Annotated[str, StringConstraints(max_length=65535), AfterValidator(_user_data)]
FlavorRef = Annotated[
    Text,
    BeforeValidator(_flavor_ref),
    StringConstraints(min_length=1, max_length=1024),
    AfterValidator(_last_segment),
]
ServerCount = Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=MOST_SERVERS)]
ImageRef = Annotated[Literal[""] | Uuid, Field(union_mode="left_to_right")]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS), AfterValidator(_unique)]


class NetworkItem(Body):
    """A port, or a network on which one is made."""

    uuid: Line | None = None
    port: Line | None = None
    fixed_ip: IpAddress | None = None
    tag: Tag | None = None


class BlockDevice(Body):
    """Only one mapping exists: the boot disk, on the host, from the image."""

    source_type: Text
    destination_type: Text = "local"
    uuid: Uuid | None = None
    boot_index: Annotated[int | None, BeforeValidator(no_boolean)] = None
    delete_on_termination: bool = True


class NewServer(Body):
    name: Name
    flavorRef: FlavorRef
    imageRef: ImageRef = ""
    block_device_mapping_v2: tuple[BlockDevice, ...] | None = None
    networks: Literal["none", "auto"] | tuple[NetworkItem, ...] | None = None
    min_count: ServerCount | None = None
    max_count: ServerCount | None = None
    return_reservation_id: bool = False
    metadata: Metadata = Field(default_factory=dict)
    tags: Tags = ()
    key_name: Text | None = None
    user_data: UserData | None = None
    config_drive: Annotated[bool, BeforeValidator(_empty_is_false)] = False
    availability_zone: Line | None = None
    host: HostName | None = None
    hypervisor_hostname: HostName | None = None
    description: Description | None = None
    hostname: Hostname | None = None


HintValue = Text | tuple[Text, ...]


class CreateServer(Body):
    server: NewServer
    hints: dict[Text, HintValue] | None = Field(None, alias="OS-SCH-HNT:scheduler_hints")
    old_hints: dict[Text, HintValue] | None = Field(None, alias="os:scheduler_hints")

    def scheduler_hints(self) -> dict[str, tuple[str, ...]]:
        """Raises ``Invalid`` for hints that nothing would honour."""
        given = {**(self.old_hints or {}), **(self.hints or {})}
        for name, why in UNHELD_HINTS.items():
            if name in given:
                raise Invalid(f"Invalid scheduler hint {name}={given[name]!r}: {why}. Leave the hint out.")
        return {name: (value,) if isinstance(value, str) else tuple(value) for name, value in given.items()}


def check_new_server(new: NewServer, version: Version) -> None:
    """What the types can't say. Raises ``Invalid``."""
    check_request("server", new.model_fields_set, version)
    if new.networks is None and "networks" in new.model_fields_set:
        raise Invalid("Invalid input for field/attribute networks. Value: None. Use auto, none or a list.")
    if version.minor < NETWORKS_SINCE and isinstance(new.networks, str):
        raise Invalid(
            f"Invalid input for field/attribute networks. Value: {new.networks!r}. The words auto and none exist from"
            f" 2.{NETWORKS_SINCE}, and {version} was asked: send a list."
        )
    if version.minor >= NETWORKS_SINCE and new.networks is None:
        raise Invalid(
            "Invalid input for field/attribute server. 'networks' is a required property from 2.37: use auto, none or"
            " a list."
        )
    if isinstance(new.networks, tuple):
        for network in new.networks:
            check_request("network", network.model_fields_set, version)
            _check_network(network)
    low, high = counts(new)
    if low > high:
        raise Invalid(f"min_count must be <= max_count: min_count is {low}, max_count {high}.")
    if high > 1 and isinstance(new.networks, tuple) and any(network.port for network in new.networks):
        raise Invalid(
            f"Unable to launch {high} servers with a port ID: a port is one NIC. Give networks, or one server."
        )
    if new.hostname is not None:
        if high > 1:
            raise Invalid(f"Invalid hostname={new.hostname!r} for {high} servers: a hostname is for one server.")
        if version.minor < 94 and not _one_label(new.hostname):
            raise Invalid(f"Invalid hostname={new.hostname!r}: a name with dots exists from 2.94; use one label.")
    if new.availability_zone is not None and ":" in new.availability_zone and (new.host or new.hypervisor_hostname):
        raise Invalid(
            f"availability_zone={new.availability_zone!r} names a host, and so does host or hypervisor_hostname: use"
            " one of them."
        )


def _check_network(network: NetworkItem) -> None:
    if network.uuid is None and network.port is None:
        raise Invalid("Invalid input for field/attribute networks. 'uuid' or 'port' is a required property.")
    if network.port is not None and network.fixed_ip is not None:
        raise Invalid(f"Invalid input for field/attribute fixed_ip: port {network.port} has its own addresses.")


def _one_label(hostname: str) -> bool:
    return "." not in hostname and len(hostname) <= 63


def counts(new: NewServer) -> tuple[int, int]:
    """The least and the most servers wanted."""
    low = new.min_count or 1
    return low, new.max_count or low


def image_id(new: NewServer) -> str:
    """The image to boot from. Raises ``Invalid`` for a mapping other than the boot disk from an image."""
    devices = new.block_device_mapping_v2
    if not devices:
        if not new.imageRef:
            raise Invalid("Invalid imageRef provided: '' boots nothing. Give the id of an image.")
        return new.imageRef
    if len(devices) > 1:
        raise Invalid(
            f"Invalid block_device_mapping_v2: {len(devices)} mappings, but only the boot disk from an image exists."
            " Leave the others out."
        )
    device = devices[0]
    wanted: Mapping[str, tuple[Any, ...]] = {
        "source_type": ("image",),
        "destination_type": ("local",),
        "boot_index": (0, None),
        "delete_on_termination": (True,),
    }
    for name, values in wanted.items():
        value = getattr(device, name)
        if value not in values:
            raise Invalid(f"Invalid block_device_mapping_v2: {name}={value!r} is not supported: use {values[0]!r}.")
    if device.uuid is None:
        raise Invalid("Invalid block_device_mapping_v2: uuid is missing: give the image's id.")
    if new.imageRef and device.uuid != new.imageRef:
        raise Invalid(
            f"Invalid block_device_mapping_v2: uuid={device.uuid!r} differs from imageRef={new.imageRef!r}: name the"
            " same image."
        )
    return device.uuid
