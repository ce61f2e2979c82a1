"""What flavor and image ask of the guest's NUMA cells, CPUs and pages (docs/models.md, Guest topology)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jetbridge.errors import ImageNumaForbidden, InvalidNumaRequest
from jetbridge.numa.cpulist import parse_cpu_list
from jetbridge.numa.topology import CpuPolicy, GuestCell, GuestTopology, ThreadPolicy

PAGE_WORDS = ("small", "large", "any")
"""Page requests that leave the size to the host."""

_UNITS_KIB = {"": 1, "K": 1, "M": 1024, "G": 1024 * 1024}
_PAGE_SIZE = re.compile(r"(?P<number>\d{1,12})\s*(?:(?P<unit>[KMG])(?:I?B)?)?", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\d{1,12}", re.ASCII)  # longer ones are surely typing errors, and some Python refuses to read
_PER_CELL = re.compile(r"hw[:_]numa_(?:cpus|mem)\.(?P<cell>.*)")


@dataclass(frozen=True)
class Asked:
    """One setting as flavor (``hw:NAME``) and image (``hw_NAME``) give it; None: not given."""

    name: str
    flavor: str | None
    image: str | None

    @property
    def flavor_field(self) -> str:
        return f"hw:{self.name}"

    @property
    def image_field(self) -> str:
        return f"hw_{self.name}"

    @property
    def value(self) -> str | None:
        return self.image if self.flavor is None else self.flavor

    @property
    def field(self) -> str:
        """The field that ``value`` comes from."""
        return self.image_field if self.flavor is None else self.flavor_field

    def refusal(self, reason: str) -> InvalidNumaRequest:
        return InvalidNumaRequest(field=self.field, value=self.value, reason=reason)

    def image_refusal(self, fix: str) -> ImageNumaForbidden:
        return ImageNumaForbidden(
            image_field=self.image_field,
            image=self.image,
            flavor_field=self.flavor_field,
            flavor="not set" if self.flavor is None else self.flavor,
            fix=fix,
        )

    def agreed(self) -> str | None:
        """The value of a setting that the image may give only where the flavor doesn't, or equally."""
        if self.flavor is not None and self.image is not None and self.flavor != self.image:
            raise self.image_refusal("remove the property from the image, or use a flavor with the same value")
        return self.value


@dataclass(frozen=True)
class _Settings:
    extra_specs: Mapping[str, str]
    image_properties: Mapping[str, str]

    def __getitem__(self, name: str) -> Asked:
        return Asked(name, _clean(self.extra_specs.get(f"hw:{name}")), _clean(self.image_properties.get(f"hw_{name}")))


def guest_topology(
    vcpus: int, memory_mb: int, extra_specs: Mapping[str, str], image_properties: Mapping[str, str]
) -> GuestTopology | None:
    """The guest's cells, not placed yet; ``memory_mb`` in MiB. None: the guest asks for no topology.

    A topology exists when NUMA nodes, a page size, or the dedicated or mixed CPU policy are asked for. Raises
    ``InvalidNumaRequest`` (400) naming field and value, ``ImageNumaForbidden`` (403) when the image contradicts
    the flavor.
    """
    settings = _Settings(extra_specs, image_properties)
    cpu_policy = _cpu_policy(settings["cpu_policy"])
    pins = cpu_policy in (CpuPolicy.DEDICATED, CpuPolicy.MIXED)
    thread_policy = _thread_policy(settings["cpu_thread_policy"], pins)
    isolate, share = _emulator_policy(settings["emulator_threads_policy"], pins)
    dedicated = _dedicated_cpus(settings["cpu_dedicated_mask"], cpu_policy, vcpus)
    page_request = _page_request(settings["mem_page_size"])
    nodes = _node_count(settings["numa_nodes"], vcpus)
    _check_cell_numbers(settings, nodes)
    if nodes is None and page_request is None and not pins:
        return None
    amount = nodes or 1
    cpus = _cpus_per_cell(settings, amount, vcpus)
    memory = _memory_per_cell(settings, amount, memory_mb)
    _check_both_or_neither(settings, amount)
    return GuestTopology(
        cells=tuple(
            GuestCell(
                id=number,
                cpus=cell_cpus - dedicated,
                pinned_cpus=cell_cpus & dedicated,
                memory_mb=cell_memory,
                page_request=page_request,
            )
            for number, (cell_cpus, cell_memory) in enumerate(zip(cpus, memory, strict=True))
        ),
        cpu_policy=cpu_policy,
        thread_policy=thread_policy,
        emulator_isolate=isolate,
        emulator_share=share,
    )


def _clean(value: str | None) -> str | None:
    return None if value is None else str(value).strip()


def _one_of(asked: Asked, value: str, words: Iterable[str]) -> str:
    """``value`` when it is one of ``words``; the error names the side (flavor or image) that gave it."""
    if value in words:
        return value
    fault = asked if value == asked.value else Asked(asked.name, None, asked.image)
    raise fault.refusal(f"use one of {', '.join(words)}")


def _cpu_policy(asked: Asked) -> CpuPolicy | None:
    """The flavor decides; an image may pin more only where the flavor says nothing."""
    words = [str(policy) for policy in CpuPolicy]
    flavor, image = (
        None if text is None else CpuPolicy(_one_of(asked, text, words)) for text in (asked.flavor, asked.image)
    )
    if flavor is CpuPolicy.SHARED and image in (CpuPolicy.MIXED, CpuPolicy.DEDICATED):
        raise asked.image_refusal("use a flavor that doesn't fix the CPU policy, or one that pins")
    if flavor is CpuPolicy.MIXED and image is CpuPolicy.DEDICATED:
        raise asked.image_refusal("use a flavor with hw:cpu_policy=dedicated")
    policy = flavor or image
    if policy is CpuPolicy.MIXED and flavor is None:
        # The mask that mixed needs can stand only in a flavor.
        raise asked.refusal("mixed needs hw:cpu_dedicated_mask, which only a flavor can give: set both in the flavor")
    return policy


def _thread_policy(asked: Asked, pins: bool) -> ThreadPolicy | None:
    words = [str(policy) for policy in ThreadPolicy]
    for text in (asked.flavor, asked.image):
        if text is not None:
            _one_of(asked, text, words)
    value = asked.value
    if value is None:
        return None
    if not pins:
        raise asked.refusal(
            "a thread policy needs pinned CPUs: set hw:cpu_policy=dedicated (or mixed), or leave it out"
        )
    # A flavor's prefer stands whatever the image says.
    if asked.flavor != ThreadPolicy.PREFER:
        asked.agreed()
    return ThreadPolicy(value)


def _emulator_policy(asked: Asked, pins: bool) -> tuple[bool, bool]:
    """(isolate, share)"""
    value = asked.agreed()
    if value is None:
        return False, False
    _one_of(asked, value, ("isolate", "share"))
    if value == "isolate" and not pins:
        raise asked.refusal("isolated emulator threads need pinned CPUs: set hw:cpu_policy=dedicated (or mixed)")
    return value == "isolate", value == "share"


def _dedicated_cpus(asked: Asked, policy: CpuPolicy | None, vcpus: int) -> frozenset[int]:
    everything = frozenset(range(vcpus))
    if asked.flavor is None:
        if policy is CpuPolicy.MIXED:
            raise InvalidNumaRequest(
                field="hw:cpu_policy",
                value="mixed",
                reason="say which guest CPUs are dedicated with hw:cpu_dedicated_mask, for example 2-3",
            )
        return everything if policy is CpuPolicy.DEDICATED else frozenset()
    if policy is not CpuPolicy.MIXED:
        raise asked.refusal("a mask needs hw:cpu_policy=mixed: set it, or remove the mask")
    # A mask of exclusions alone (^0-1) means all CPUs but these.
    text = f"0-{vcpus - 1},{asked.flavor}" if asked.flavor.startswith("^") else asked.flavor
    mask = _cpu_list(asked, text)
    if mask - everything:
        raise asked.refusal(f"the flavor has guest CPUs 0 to {vcpus - 1}")
    if not mask or mask == everything:
        raise asked.refusal("a mixed guest has dedicated and shared CPUs: name some of its CPUs, not all and not none")
    return mask


def _page_request(asked: Asked) -> str | None:
    """A word of ``PAGE_WORDS`` or a size in KiB. An image may choose a size only where the flavor leaves it open."""
    flavor = None if asked.flavor is None else _page_size(asked, asked.flavor)
    image = None if asked.image is None else _page_size(Asked(asked.name, None, asked.image), asked.image)
    if image is None or image == flavor:
        return flavor
    if flavor in ("large", "any"):
        return image
    raise asked.image_refusal("an image may choose a page size only when the flavor has hw:mem_page_size=large or any")


def _page_size(asked: Asked, text: str) -> str:
    if text in PAGE_WORDS:
        return text
    match = _PAGE_SIZE.fullmatch(text)
    if match is None or int(match["number"]) == 0:
        raise asked.refusal("use small, large, any, or a size such as 2048 (KiB), 2MB or 1GB")
    return str(int(match["number"]) * _UNITS_KIB[(match["unit"] or "").upper()])


def _node_count(asked: Asked, vcpus: int) -> int | None:
    value = asked.agreed()
    if value is None:
        return None
    if not _NUMBER.fullmatch(value) or int(value) < 1:
        raise asked.refusal("use a whole number from 1 on")
    if int(value) > vcpus:
        raise asked.refusal(f"the flavor has {vcpus} VCPUs and every node needs at least one")
    return int(value)


def _check_cell_numbers(settings: _Settings, nodes: int | None) -> None:
    for key, value in sorted([*settings.extra_specs.items(), *settings.image_properties.items()]):
        match = _PER_CELL.fullmatch(key)
        if match is None:
            continue
        if nodes is None:
            raise InvalidNumaRequest(field=key, value=value, reason="set hw:numa_nodes as well")
        if match["cell"] not in {str(number) for number in range(nodes)}:
            raise InvalidNumaRequest(field=key, value=value, reason=f"the guest's nodes are numbered 0 to {nodes - 1}")


def _check_both_or_neither(settings: _Settings, nodes: int) -> None:
    both = (settings["numa_cpus.0"], settings["numa_mem.0"])
    present = [asked for asked in both if asked.value is not None]
    missing = [asked for asked in both if asked.value is None]
    if nodes > 1 and present and missing:
        raise present[0].refusal(
            f"give {missing[0].flavor_field.removesuffix('0')}N for every node too, or neither of the two"
        )


def _cpus_per_cell(settings: _Settings, nodes: int, vcpus: int) -> Sequence[frozenset[int]]:
    given = _given_per_cell(settings, "numa_cpus", nodes)
    if given is None:
        if vcpus % nodes:
            raise settings["numa_nodes"].refusal(
                f"{vcpus} VCPUs can't be divided evenly: give hw:numa_cpus.N and hw:numa_mem.N for every node"
            )
        each = vcpus // nodes
        return [frozenset(range(number * each, (number + 1) * each)) for number in range(nodes)]
    cells: list[frozenset[int]] = []
    seen: frozenset[int] = frozenset()
    for asked, text in given:
        cpus = _cpu_list(asked, text)
        if not cpus:
            raise asked.refusal("a node needs at least one CPU")
        if cpus - frozenset(range(vcpus)):
            raise asked.refusal(f"the flavor has guest CPUs 0 to {vcpus - 1}")
        if cpus & seen:
            raise asked.refusal(f"CPU {min(cpus & seen)} is in another node already")
        seen |= cpus
        cells.append(cpus)
    if len(seen) < vcpus:
        left = min(frozenset(range(vcpus)) - seen)
        raise given[-1][0].refusal(f"CPU {left} is in no node: every one of the flavor's {vcpus} VCPUs needs one")
    return cells


def _memory_per_cell(settings: _Settings, nodes: int, memory_mb: int) -> Sequence[int]:
    given = _given_per_cell(settings, "numa_mem", nodes)
    if given is None:
        if memory_mb % nodes:
            raise settings["numa_nodes"].refusal(
                f"{memory_mb} MiB can't be divided evenly: give hw:numa_cpus.N and hw:numa_mem.N for every node"
            )
        return [memory_mb // nodes] * nodes
    cells = []
    for asked, text in given:
        if not _NUMBER.fullmatch(text) or int(text) < 1:
            raise asked.refusal("use a whole number of MiB, 1 or more")
        cells.append(int(text))
    if sum(cells) != memory_mb:
        raise given[-1][0].refusal(f"the nodes have {sum(cells)} MiB together, the flavor has {memory_mb}")
    return cells


def _given_per_cell(settings: _Settings, name: str, nodes: int) -> Sequence[tuple[Asked, str]] | None:
    """The setting for every node with its value, or None when it is given for none."""
    asked_for = [settings[f"{name}.{number}"] for number in range(nodes)]
    given = [(asked, text) for asked in asked_for if (text := asked.agreed()) is not None]
    if not given:
        return None
    for asked in asked_for:
        if asked.value is None:
            raise given[0][0].refusal(f"{asked.flavor_field} is missing: give it for every node")
    return given


def _cpu_list(asked: Asked, text: str) -> frozenset[int]:
    try:
        return parse_cpu_list(text)
    except ValueError as error:
        raise asked.refusal(str(error)) from None
