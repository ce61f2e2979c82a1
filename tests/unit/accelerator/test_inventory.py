from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jetbridge.accelerator.inventory import changes, declared
from jetbridge.errors import InvalidConfiguration
from jetbridge.model.accelerator import Accelerator, AcceleratorCondition, AttachHandle, AttachType
from tests.unit.accelerator.hosts import T4, numbers, report, specs

GPU = {**T4, "type": "GPU"}
PF = "0000:81:00.0"


def of(lines: list[dict[str, Any]], *reports: dict[str, Any]) -> tuple[Accelerator, ...]:
    return declared(specs(*lines), reports, 1, "gpu1", numbers())


def stored(*found: Accelerator) -> tuple[Accelerator, ...]:
    """As the table gives them back."""
    return tuple(
        replace(
            each,
            id=index,
            handles=tuple(
                replace(handle, id=10 * index + position, accelerator_id=index)
                for position, handle in enumerate(each.handles)
            ),
        )
        for index, each in enumerate(found, start=1)
    )


def owned(accelerator: Accelerator, position: int = 0) -> Accelerator:
    handles = list(accelerator.handles)
    handles[position] = replace(handles[position], arq_uuid="arq")
    return replace(accelerator, handles=tuple(handles))


def test_a_function_is_a_device_with_one_handle() -> None:
    (found,) = of([GPU], report("0000:3b:00.0"), report("0000:5e:00.0", product_id="26b9"))
    (handle,) = found.handles
    assert (found.address, found.name, found.resource_class) == (
        "0000:3b:00.0",
        "gpu1_accelerator_0000:3b:00.0",
        "PGPU",
    )
    assert (handle.attach_type, handle.info) == (
        AttachType.PCI,
        {"domain": "0000", "bus": "3b", "device": "00", "function": "0"},
    )


def test_virtual_functions_are_handles_of_their_card() -> None:
    (card,) = of([GPU], report("0000:81:10.0", PF), report("0000:81:10.2", PF))
    assert (card.address, [handle.address for handle in card.handles]) == (PF, ["0000:81:10.0", "0000:81:10.2"])


def test_f17_a_card_is_not_offered_whole_beside_its_virtual_functions() -> None:
    (card,) = of([GPU], report(PF), report("0000:81:10.0", PF))
    assert [handle.address for handle in card.handles] == ["0000:81:10.0"]


def test_mediated_devices_are_handles_of_their_parent() -> None:
    (card,) = of([{**GPU, "mdev_type": "nvidia-55", "mdev_count": 2}], report("0000:3b:00.0"))
    assert [(handle.attach_type, handle.position) for handle in card.handles] == [("MDEV", 0), ("MDEV", 1)]
    assert card.handles[0].info["asked_type"] == "nvidia-55"


def test_functions_of_one_card_are_of_one_kind() -> None:
    lines = [{**GPU, "address": "0000:81:10.0"}, {**GPU, "address": "0000:81:10.2", "traits": "CUSTOM_B"}]
    with pytest.raises(InvalidConfiguration, match="same type, class and traits"):
        of(lines, report("0000:81:10.0", PF), report("0000:81:10.2", PF))


def test_the_same_again_changes_nothing() -> None:
    found = of([GPU], report("0000:3b:00.0"), report("0000:81:10.0", PF), report("0000:81:10.2", PF))
    assert not changes(stored(*found), found).any


def test_what_is_new_is_saved_and_what_is_gone_removed() -> None:
    old = stored(*of([GPU], report("0000:3b:00.0")))
    new = of([GPU], report("0000:5e:00.0"))
    change = changes(old, new)
    assert (change.saved, change.removed) == (new, old)


def test_a_virtual_function_that_goes_takes_its_handle_along() -> None:
    (old,) = stored(*of([GPU], report("0000:81:10.0", PF), report("0000:81:10.2", PF)))
    change = changes([old], of([GPU], report("0000:81:10.0", PF)))
    assert change.handles_removed == old.handles[1:]


def test_what_a_guest_has_is_lost_and_kept() -> None:
    (old,) = stored(*of([GPU], report("0000:3b:00.0")))
    change = changes([owned(old)], ())
    assert change.removed == ()
    (kept,) = change.saved
    assert kept.handles[0].condition is AcceleratorCondition.LOST
    assert not changes([kept], ()).any
    (found_again,) = changes([kept], of([GPU], report("0000:3b:00.0"))).saved
    assert found_again.handles[0].condition is AcceleratorCondition.OK


def test_a_line_that_offers_something_else_does_not_change_what_a_guest_has() -> None:
    (old,) = stored(*of([GPU], report("0000:3b:00.0")))
    new = of([{**GPU, "mdev_type": "nvidia-55", "mdev_count": 1}], report("0000:3b:00.0"))

    def kinds(handles: tuple[AttachHandle, ...]) -> list[tuple[str, str]]:
        return [(handle.attach_type.value, handle.condition.value) for handle in handles]

    (changed,) = changes([owned(old)], new).saved
    assert kinds(changed.handles) == [("PCI", "lost")]
    (free,) = changes([old], new).saved
    assert kinds(free.handles) == [("MDEV", "ok")]
    assert free.handles[0].id == old.handles[0].id


def test_a_handle_says_what_its_function_is_wired_to() -> None:
    nics = [
        {"address": address, "type": "NIC", "physical_network": name}
        for address, name in (("3b:00.0", "n1"), ("5e:00.0", None))
    ]
    wired, unwired = of(nics, report("0000:3b:00.0"), report("0000:5e:00.0"))
    assert wired.handles[0].info["physical_network"] == "n1"
    assert "physical_network" not in unwired.handles[0].info
