from __future__ import annotations

import pytest

from jetbridge.accelerator.ports import binding_profile, port_groups
from jetbridge.errors import AcceleratorRequestOpFailed, DeviceProfileError
from jetbridge.model.accelerator import DeviceProfile

HANDLE = {"domain": "0000", "bus": "3b", "device": "0", "function": "1", "physical_network": "n1"}


def test_case_122_a_ports_binding_says_where_its_function_is() -> None:
    assert binding_profile("a1", HANDLE) == {"pci_slot": "0000:3b:0.1", "physical_network": "n1", "arq_uuid": "a1"}


@pytest.mark.parametrize("key", sorted(HANDLE))
def test_a_handle_that_lacks_something_is_named(key: str) -> None:
    with pytest.raises(AcceleratorRequestOpFailed, match=f"a1 has no {key}"):
        binding_profile("a1", {name: value for name, value in HANDLE.items() if name != key})


def test_a_port_asks_for_one_device_under_its_own_name() -> None:
    (group,), warnings = port_groups(DeviceProfile("u", "nic", ({"resources:CUSTOM_NIC": "1"},)), "p1")
    assert (group.requester_id, dict(group.resources)) == ("device_profile_0p1", {"CUSTOM_NIC": 1})
    assert warnings == ()


@pytest.mark.parametrize(
    ("groups", "asked"),
    [
        (({"resources:FPGA": "2"},), 2),
        (({"resources:FPGA": "1"}, {"resources:PGPU": "1"}), 2),
        (({"resources:FPGA": "some", "resources:nonsense": "1"},), 0),
    ],
)
def test_several_devices_are_no_port_and_neither_is_none(groups: tuple[dict[str, str], ...], asked: int) -> None:
    with pytest.raises(DeviceProfileError, match=f"asks for {asked} devices, and port p1 is one"):
        port_groups(DeviceProfile("u", "nic", groups), "p1")


def test_a_port_without_a_profile_is_refused() -> None:
    with pytest.raises(DeviceProfileError, match="port p1 has none"):
        port_groups(None, "p1")
