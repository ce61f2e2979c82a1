"""The demo's second story: a device profile, the accelerator request that it becomes, and the device in the guest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jetbridge.cli.demo_story import READY_SECONDS, Journey, hostdev_of
from jetbridge.cli.failures import CliError
from jetbridge.model.events import SeamEvent

if TYPE_CHECKING:
    from jetbridge.cli.demo import Teller

API = "/accelerator/v2"
PROFILE = "infer"
GROUPS = [{"resources:PGPU": "1", "trait:CUSTOM_GPU_PRODUCT_ID_1EB8": "required"}]
_PAUSE_SECONDS = 0.05


@dataclass
class AcceleratorStory:
    """``states``: what the request was after which call."""

    profile: Mapping[str, Any] = field(default_factory=dict)
    server: str = ""
    arq: Mapping[str, Any] = field(default_factory=dict)
    states: list[tuple[str, str]] = field(default_factory=list)
    hostdev: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": dict(self.profile),
            "server": self.server,
            "arq": dict(self.arq),
            "states": [{"after": after, "state": state} for after, state in self.states],
            "hostdev": self.hostdev,
        }


def tell_of_accelerators(journey: Journey, teller: Teller) -> AcceleratorStory:
    """Boot a server whose flavor names a device profile, show what became of it, and delete it. Raises ``CliError``."""
    story = AcceleratorStory()
    client = journey.client
    journey.wait_for_hosts({})
    devices = _wait_for_providers(journey)
    teller.chapter("The accelerators", f"the accelerator service owns {len(devices)} GPUs of {devices[0]['hostname']}")
    story.profile = client.post(f"{API}/device_profiles", [{"name": PROFILE, "groups": GROUPS}])
    teller.chapter("The device profile", f"{PROFILE}: {GROUPS[0]}")
    journey.make_flavor_of({"accel:device_profile": PROFILE})
    teller.chapter("The flavor", f"demo: accel:device_profile={PROFILE}")
    teller.chapter("The build", "the conductor creates the accelerator request and binds it, the host waits for it")
    journey.boot()
    story.server = journey.story.server
    teller.say(f"ACTIVE after {journey.story.build_seconds:.2f} s", "bold green")
    (story.arq,) = client.get(f"{API}/accelerator_requests", instance=story.server)["arqs"]
    story.states = _states(journey.story.events)
    info = story.arq["attach_handle_info"]
    address = f"{info['domain']}:{info['bus']}:{info['device']}.{info['function']}"
    document = client.get(f"/jetbridge/v1/servers/{story.server}/xml")
    story.hostdev = hostdev_of(document["xml"], address)
    teller.chapter("What the profile became", "")
    for label, text in (
        ("request", story.arq["uuid"]),
        ("states", ", then ".join(f"{state} after {after}" for after, state in story.states)),
        ("bound", f"to {story.arq['hostname']}, provider {story.arq['device_rp_uuid']}"),
        ("handle", f"{story.arq['attach_handle_type']} {address}"),
        ("XML", f"of {document['domain']}, as read back from the hypervisor:"),
    ):
        teller.say(f"   {label:<8} {text}")
    for line in story.hostdev.splitlines():
        teller.say(f"     {line}", "cyan")
    teller.chapter("The delete", "")
    journey.delete()
    left = client.get(f"{API}/accelerator_requests")["arqs"]
    if left:
        raise CliError(f"{len(left)} accelerator requests are left after the delete")
    teller.say("the request is gone, and its device is free", "bold green")
    return story


def _wait_for_providers(journey: Journey) -> list[Mapping[str, Any]]:
    """Until Placement knows every device of the service."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        found = journey.client.get(f"{API}/deployables")["deployables"]
        if found and all(each["rp_uuid"] for each in found):
            return list(journey.client.get(f"{API}/devices")["devices"])
        time.sleep(_PAUSE_SECONDS)
    raise CliError("the accelerators were not reported to Placement: the log in the state folder tells why")


def _states(events: list[SeamEvent]) -> list[tuple[str, str]]:
    """The request's states, each after the call that showed it first."""
    states: list[tuple[str, str]] = []
    for event in events:
        state = event.essentials.get("state")
        if event.target == "accelerator" and state and (not states or states[-1][1] != state):
            states.append((event.what.partition(" ")[0], state))
    return states
