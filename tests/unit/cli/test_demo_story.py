from __future__ import annotations

from dataclasses import replace

import pytest

from jetbridge.cli.demo_story import alias_of_pool, find_target, has_alias, hostdev_of
from jetbridge.cli.failures import CliError
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.device import DeviceType
from jetbridge.pci.pool import Pool


def pool(product: str = "1eb8", dev_type: DeviceType = DeviceType.PCI, count: int = 1) -> Pool:
    return Pool("10de", product, 0, dev_type, "0000:3b:00.0", count)


ALIASES = parse_aliases(
    [
        '{"name": "H100", "vendor_id": "10de", "product_id": "2330", "device_type": "type-PF"}',
        '{"name": "GPU", "vendor_id": "10de", "product_id": "1eb8"}',
    ]
)


def test_first_alias_that_a_host_can_serve_is_taken() -> None:
    pools = {"a": [pool("9999")], "b": [pool()]}
    target = find_target(ALIASES, pools)
    assert target is not None
    assert (target.alias.name, target.host) == ("GPU", "b")
    both = find_target(ALIASES, {**pools, "c": [pool("2330", DeviceType.PF)]})
    assert both is not None
    assert (both.alias.name, both.host) == ("H100", "c")


def test_a_device_of_another_type_is_no_target() -> None:
    """F15: ids alone don't make a PF match."""
    assert find_target(ALIASES, {"a": [pool("1eb8", DeviceType.PF)], "b": []}) is None


@pytest.mark.parametrize("dev_type", [DeviceType.PCI, DeviceType.PF, DeviceType.VF])
def test_alias_made_of_a_pool_matches_that_pool(dev_type: DeviceType) -> None:
    import json

    made = parse_aliases([json.dumps(alias_of_pool(pool(dev_type=dev_type)))])
    assert find_target(made, {"h": [pool(dev_type=dev_type)]}) is not None


def test_devices_for_ports_only_get_no_alias() -> None:
    """No alias can name the type vdpa: the demo of a fleet that offers such devices ended in an error about its own alias."""
    assert has_alias(pool())
    assert has_alias(replace(pool(), tags={"remote_managed": "false"}))
    assert not has_alias(pool(dev_type=DeviceType.VDPA))
    assert not has_alias(replace(pool(dev_type=DeviceType.VF), tags={"remote_managed": "Yes"}))


XML = """
<domain><devices>
  <hostdev mode="subsystem" type="mdev" model="vfio-pci"><source><address uuid="11111111-2222-4333-8444-555555555555"/></source></hostdev>
  <hostdev mode="subsystem" type="pci" managed="yes">
    <source><address domain="0x0000" bus="0x3b" slot="0x00" function="0x0"/></source>
    <address type="pci" domain="0x0000" bus="0x05" slot="0x00" function="0x0"/>
  </hostdev>
</devices></domain>"""


def test_hostdev_is_found_by_its_source_not_by_its_place_in_the_guest() -> None:
    assert 'bus="0x3b"' in hostdev_of(XML, "0000:3b:00.0")
    with pytest.raises(CliError, match=r"0000:05:00\.0"):
        hostdev_of(XML, "0000:05:00.0")
