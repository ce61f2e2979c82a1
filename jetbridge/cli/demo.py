"""jetbridge demo: a device's way into a guest and back, watched."""

from __future__ import annotations

import contextlib
import queue
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jetbridge.cli.failures import CliError
from jetbridge.cli.options import Json

if TYPE_CHECKING:
    from jetbridge.cli.demo_accelerator import AcceleratorStory
    from jetbridge.cli.demo_story import Journey, Story
    from jetbridge.config.fleet import Fleet
    from jetbridge.model.events import SeamEvent
    from jetbridge.pci.request import Alias, AliasTable
    from jetbridge.placement.client import PlacementClient


def demo(
    fleet: Annotated[
        Path | None,
        typer.Option(
            "--fleet", help="Simulate the hosts of this fleet file.", show_default="a small T4, H100 and A40 fleet"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Watch one device travel from a line in a flavor into a guest, and back.

    Starts the whole service on a simulated fleet, in a temporary folder and on
    a free port; makes a flavor with [bold]pci_passthrough:alias[/bold], boots a server,
    shows every message between the services as it crosses, the device, and its
    <hostdev> as the hypervisor holds it; deletes the server, and shows that the
    device is free again. Then the same line once more by Placement: the provider
    that stands for the device, its inventory and its allocation. Then a vGPU, a part
    of a card, by [bold]resources:VGPU[/bold]; then a flavor with [bold]accel:device_profile[/bold],
    whose device belongs to the accelerator service.

    [bold]Examples[/bold]

      jetbridge demo

      jetbridge demo --fleet my-fleet.yaml
    """
    from jetbridge.cli.output import print_json
    from jetbridge.config.fleet import load_fleet

    path = fleet or Path(__file__).with_name("example-fleet.yaml")
    teller = Teller(quiet=as_json)
    story = _play(load_fleet(path), teller)
    accelerated = _accelerate(teller) if fleet is None else None
    teller.say(
        f"Next: `{_program()} up --fleet FILE`, then `openstack server create ...` (README.md; `make setup-test` brings the client)",
        "dim",
    )
    if as_json:
        print_json(story.to_json() | ({"accelerators": accelerated.to_json()} if accelerated else {}))


def _accelerate(teller: Teller) -> AcceleratorStory:
    """The same by the accelerator service, on a fleet of its own."""
    from jetbridge.cli.demo_accelerator import tell_of_accelerators
    from jetbridge.config.fleet import load_fleet

    fleet = load_fleet(Path(__file__).with_name("example-accelerators.yaml"))
    with (
        tempfile.TemporaryDirectory(prefix="jetbridge-demo-") as folder,
        _service(fleet, Path(folder), teller) as (journey, _, _),
    ):
        return tell_of_accelerators(journey, teller)


def _program() -> str:
    # `make demo` runs it without activating the environment.
    return "jetbridge" if shutil.which("jetbridge") else sys.argv[0]


def _play(fleet: Fleet, teller: Teller) -> Story:
    with tempfile.TemporaryDirectory(prefix="jetbridge-demo-") as folder:
        fleet, story = _play_alias(fleet, Path(folder), teller)
        _play_placement(fleet, Path(folder), story, teller)
    return story


def _play_alias(fleet: Fleet, folder: Path, teller: Teller) -> tuple[Fleet, Story]:
    """The fleet with the lines that it may have lacked, and what happened."""
    from jetbridge.cli.demo_story import find_target

    with _service(fleet, folder, teller) as (journey, aliases, _):
        pools = journey.wait_for_hosts(aliases)
        target = find_target(aliases, pools)
        if target is not None:
            return fleet, _travel(journey, target.alias, teller)
        if aliases:
            raise CliError(f"{fleet.path}: no free device for {_wanted(aliases)}. {_offered(pools)}")
        extra = _lines_for(journey, fleet, pools)
    # The configuration of a service is fixed when it starts: it is started anew with the lines it lacked.
    teller.say(f"{fleet.path} has no alias: the demo adds {_shown(extra)}", "dim")
    fleet = _with_lines(fleet, extra)
    with _service(fleet, folder, teller) as (journey, aliases, _):
        target = find_target(aliases, journey.wait_for_hosts(aliases))
        if target is None:
            raise CliError(f"{fleet.path}: no free device for {_wanted(aliases)}")
        return fleet, _travel(journey, target.alias, teller)


def _play_placement(fleet: Fleet, folder: Path, story: Story, teller: Teller) -> None:
    """The same service, started anew with model 2. A fleet whose lines model 2 doesn't allow is told why."""
    from jetbridge.cli.demo_placement import SWITCHES, by_placement
    from jetbridge.errors import JetbridgeError

    teller.chapter("The same by Placement", "[pci]report_in_placement, [filter_scheduler]pci_in_placement")
    switched = _merged(fleet, SWITCHES)
    try:
        with _service(switched, folder, teller) as (journey, aliases, placement):
            journey.wait_for_hosts(aliases)
            shown = by_placement(
                journey, placement, story.host, lambda label, text: teller.say(f"   {label:<9} {text}")
            )
    except JetbridgeError as error:
        teller.say(f"   not for this fleet: {error.message}", "yellow")
        return
    story.placement = shown.to_json()


@contextlib.contextmanager
def _service(fleet: Fleet, folder: Path, teller: Teller) -> Iterator[tuple[Journey, AliasTable, PlacementClient]]:
    """The all-in-one on the fleet: a journey through it, its aliases, and its Placement."""
    from jetbridge.cli.client import Client
    from jetbridge.cli.demo_story import Journey
    from jetbridge.config.overrides import apply_overrides
    from jetbridge.config.settings import Settings
    from jetbridge.pci.alias import parse_aliases
    from jetbridge.service.allinone import AllInOne

    settings = Settings()
    effective = apply_overrides(settings, fleet.config, str(fleet.path))
    aliases = parse_aliases(effective.pci_alias, pci_in_placement=effective.pci_in_placement)
    events: queue.SimpleQueue[SeamEvent] = queue.SimpleQueue()
    service = AllInOne(settings, fleet, folder, "127.0.0.1", 0, events=events.put)
    base_url = service.start()
    try:
        with contextlib.closing(Client(base_url)) as client:  # an open connection would delay the stop
            yield Journey(client, events, teller.event), aliases, service.placement.by("demo")
    finally:
        service.stop()


def _travel(journey: Journey, alias: Alias, teller: Teller) -> Story:
    story = journey.story
    before = journey.pools()
    teller.chapter("The fleet", f"{_some(story.hosts)}: {sum(pool['count'] for pool in before)} devices are free")
    journey.make_flavor(alias)
    teller.chapter("The flavor", f"demo: pci_passthrough:alias={alias.name}:1")
    teller.chapter("The build", "what crosses from one service to another, as it happens")
    journey.boot()
    teller.say(f"ACTIVE after {story.build_seconds:.2f} s", "bold green")
    journey.look()
    story.free_before = journey.free_in(before)
    story.free_during = journey.free_in(journey.pools())
    teller.chapter("What the line became", "")
    teller.outcome(story)
    _prove(story.free_during == story.free_before - 1, "taken", story.free_before, story.free_during)
    teller.chapter("The pools", f"{story.host} had {story.free_before} of this kind free, now {story.free_during}")
    teller.chapter("The delete", "")
    journey.delete()
    story.free_after = journey.free_in(journey.pools())
    _prove(story.free_after == story.free_before, "given back", story.free_before, story.free_after)
    teller.say(f"the device is back: {story.free_after} free on {story.host}", "bold green")
    _slice(journey, teller)
    return story


def _slice(journey: Journey, teller: Teller) -> None:
    """Of a fleet that has some: a vGPU on the same way."""
    from jetbridge.cli.demo_vgpu import boot_and_delete, offered

    kind = offered(journey)
    if kind is None:
        return
    wish = f"resources:{kind['resource_class']}=1"
    teller.chapter(
        "A slice of a GPU", f"a flavor with {wish}: one {kind['type']} of card {kind['parent']} on {kind['host']}"
    )
    found = journey.story.vgpu = boot_and_delete(journey, kind)
    vgpu = found["vgpu"]
    teller.say(f"   {'vGPU':<8} {vgpu['uuid'] or vgpu['parent']}: {vgpu['type']} on {vgpu['parent']}, {vgpu['state']}")
    for line in found["hostdev"].splitlines():
        teller.say(f"     {line}", "cyan")
    teller.say("the server is deleted, and its vGPU waits for the next one", "bold green")


def _prove(holds: bool, what: str, before: int, now: int) -> None:
    if not holds:
        raise CliError(f"the device was not {what}: {before} of its kind were free before the boot, {now} are now")


# --- fleets that lack configuration ---------------------------------------------------------------


def _lines_for(journey: Journey, fleet: Fleet, pools: Mapping[str, Sequence[Any]]) -> Any:
    """Configuration for a fleet without aliases: from a pool it offers, else from what a scan of its hosts finds."""
    from jetbridge.cli.demo_story import alias_of_pool, has_alias

    for of_host in pools.values():
        for pool in filter(has_alias, of_host):
            return {"alias": alias_of_pool(pool)}
    for host in journey.story.hosts:
        found = journey.client.get("/jetbridge/v1/scan", host=host)["functions"]
        for function in sorted(found, key=lambda each: (bool(each["warnings"]), not _is_gpu(each))):
            if (suggestion := function["suggestion"]) is not None:
                return {key: _parsed(suggestion[key]) for key in ("device_spec", "alias")}
    raise CliError(
        f"{fleet.path}: its hosts ({_some(journey.story.hosts)}) have no device that can be passed through: give one"
        " hardware (`jetbridge fleet templates` lists what there is)"
    )


def _is_gpu(function: Mapping[str, Any]) -> bool:
    return str(function["class_code"]).startswith(("0x03", "0x12"))


def _parsed(line: str) -> Any:
    """The value of a line as it stands in a configuration file."""
    import json

    return json.loads(line.partition(" = ")[2])


def _with_lines(fleet: Fleet, extra: Mapping[str, Any]) -> Fleet:
    return _merged(fleet, {"pci": {key: [value] for key, value in extra.items()}})


def _merged(fleet: Fleet, options: Mapping[str, Mapping[str, Any]]) -> Fleet:
    def merged(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        return {**config, **{section: {**config.get(section, {}), **values} for section, values in options.items()}}

    # A host's own configuration carries the fleet's.
    hosts = tuple(replace(host, config=merged(host.config)) for host in fleet.hosts)
    return replace(fleet, config=merged(fleet.config), hosts=hosts)


def _shown(extra: Mapping[str, Any]) -> str:
    import json

    return " and ".join(f"{key} = {json.dumps(value)}" for key, value in extra.items())


def _wanted(aliases: AliasTable) -> str:
    names = [
        f"{alias.name} ({' or '.join(', '.join(f'{k}={v}' for k, v in each.items()) for each in alias.properties)})"
        for alias in aliases.values()
    ]
    return "any of its aliases " + "; ".join(names) if len(names) > 1 else f"its alias {names[0]}"


def _offered(pools: Mapping[str, Sequence[Any]]) -> str:
    kinds = sorted(
        {f"{pool.vendor_id}:{pool.product_id} {pool.dev_type}" for of_host in pools.values() for pool in of_host}
    )
    return f"What is free: {', '.join(kinds)}" if kinds else "Nothing is free: does [pci]device_spec name devices?"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more hosts"


# --- telling --------------------------------------------------------------------------------------


class Teller:
    """Shows the story: with colours on a terminal, as plain lines when piped, not at all when ``quiet``."""

    def __init__(self, *, quiet: bool) -> None:
        from jetbridge.cli.output import console

        self._quiet = quiet
        self._console = console()
        self._chapters = 0
        self._began: float | None = None

    def say(self, line: str, style: str = "") -> None:
        if not self._quiet:
            self._console.print(line, style=style or None, markup=False)
            sys.stdout.flush()

    def chapter(self, title: str, text: str) -> None:
        self._chapters += 1
        self._began = None
        if not self._quiet:
            from rich.text import Text

            heading = Text(f"{self._chapters}  {title}", style="bold")
            self._console.print(heading.append(f"  {text}", style="not bold") if text else heading)

    def event(self, event: SeamEvent) -> None:
        if self._quiet:
            return
        from rich.text import Text

        from jetbridge.cli.output import SEAM_STYLES

        self._began = event.at if self._began is None else self._began
        after = max(0.0, event.at - self._began) * 1000
        took = f"  {event.seconds * 1000:.0f} ms" if event.seconds is not None else ""
        line = Text()
        line.append(f"  {after:5.0f} ms  ", style="dim")
        line.append(f"{event.seam.value:<9}", style=SEAM_STYLES.get(event.seam.value, ""))
        line.append(f"{event.source} -> {event.target}".ljust(29) + " ")
        line.append(event.what, style="bold")
        line.append(took, style="dim")
        self._console.print(line)

    def outcome(self, story: Story) -> None:
        assert story.alias is not None
        device = story.device
        wanted = " or ".join(
            ", ".join(f"{key}={value}" for key, value in properties.items()) for properties in story.alias.properties
        )
        node = f", NUMA node {device['numa_node']}" if device["numa_node"] is not None else ""
        for label, text in (
            ("alias", f"{story.alias.name}: {wanted}"),
            ("request", f"{device['request_id']}: fixed before scheduling"),
            ("host", story.host),
            ("device", f"{device['address']} {device['vendor_id']}:{device['product_id']}{node}, {device['status']}"),
            ("XML", f"of {story.domain}, as read back from the hypervisor:"),
        ):
            self.say(f"   {label:<8} {text}")
        for line in story.hostdev.splitlines():
            self.say(f"     {line}", "cyan")
