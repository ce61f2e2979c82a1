from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from jetbridge.errors import (
    ImagePCINUMAPolicyForbidden,
    InvalidPCINUMAAffinity,
    PciInvalidRequest,
    PciRequestAliasNotDefined,
)
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.flavor import flavor_policy, parse_alias_term, requests_from_flavor
from jetbridge.pci.request import NumaPolicy, PciRequest
from tests.unit.pci.build import cases

FLAVOR, IMAGE = "hw:pci_numa_affinity_policy", "hw_pci_numa_affinity_policy"
T4 = {"vendor_id": "10de", "product_id": "1eb8"}
NIC = {"vendor_id": "8086", "product_id": "154c", "dev_type": "type-VF"}
ALIASES = parse_aliases(
    [
        '{"name":"gpu","vendor_id":"10de","product_id":"1eb8"}',
        '{"name":"nic","vendor_id":"8086","product_id":"154c","device_type":"type-VF","numa_policy":"preferred"}',
    ]
)


def ids() -> Any:
    numbers = count(1)
    return lambda: f"id-{next(numbers)}"


@pytest.mark.parametrize("case", cases("pci_flavor.yaml"))
def test_alias_term(case: dict[str, Any]) -> None:
    if "says" in case:
        with pytest.raises(PciInvalidRequest) as caught:
            parse_alias_term(case["value"])
        assert case["says"] in str(caught.value)
        assert repr(case["value"]) in str(caught.value)
        assert "NAME:COUNT" in str(caught.value)
        assert caught.value.http_status == 400
    else:
        assert parse_alias_term(case["value"]) == tuple((name, number) for name, number in case["terms"])


def test_requests_follow_the_terms() -> None:
    assert requests_from_flavor({"pci_passthrough:alias": "gpu:1, nic:2"}, {}, ALIASES, ids()) == (
        PciRequest(request_id="id-1", count=1, spec=(T4,), alias_name="gpu", numa_policy=NumaPolicy.LEGACY),
        PciRequest(request_id="id-2", count=2, spec=(NIC,), alias_name="nic", numa_policy=NumaPolicy.PREFERRED),
    )


def test_the_flavors_policy_goes_before_the_aliases() -> None:
    extra_specs = {"pci_passthrough:alias": "gpu:2,nic:1", FLAVOR: "socket"}
    found = requests_from_flavor(extra_specs, {}, ALIASES, ids())
    assert [request.numa_policy for request in found] == [NumaPolicy.SOCKET, NumaPolicy.SOCKET]


def test_no_extra_spec_no_requests() -> None:
    assert requests_from_flavor({}, {IMAGE: "required"}, ALIASES, ids()) == ()


@pytest.mark.parametrize(
    ("aliases", "name", "hint"),
    [
        (ALIASES, "GPU", "Did you mean gpu?"),
        (ALIASES, "accelerator", "Defined in [pci]alias: gpu, nic."),
        ({}, "gpu", "No alias is configured: add one to [pci]alias."),
    ],
)
def test_an_unknown_alias_is_named_with_the_nearest(aliases: Any, name: str, hint: str) -> None:
    with pytest.raises(PciRequestAliasNotDefined) as caught:
        requests_from_flavor({"pci_passthrough:alias": f"{name}:1"}, {}, aliases, ids())
    assert caught.value.facts == {"alias": name, "hint": hint}
    assert str(caught.value) == f"PCI alias {name} is not defined. {hint}"
    assert caught.value.http_status == 400


def test_the_grammar_is_checked_before_names() -> None:
    with pytest.raises(PciInvalidRequest):
        requests_from_flavor({"pci_passthrough:alias": "unknown:1,gpu"}, {}, ALIASES, ids())


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        ({}, {}, None),
        ({FLAVOR: "required"}, {}, NumaPolicy.REQUIRED),
        ({}, {IMAGE: "legacy"}, NumaPolicy.LEGACY),
        ({FLAVOR: "socket"}, {IMAGE: "socket"}, NumaPolicy.SOCKET),
        ({FLAVOR: ""}, {IMAGE: "preferred"}, NumaPolicy.PREFERRED),
        ({FLAVOR: "preferred"}, {IMAGE: ""}, NumaPolicy.PREFERRED),
    ],
)
def test_policy_of_flavor_or_image(flavor: dict[str, str], image: dict[str, str], policy: NumaPolicy | None) -> None:
    assert flavor_policy(flavor, image) is policy


def test_an_image_may_not_override_the_flavor() -> None:
    with pytest.raises(ImagePCINUMAPolicyForbidden, match=r"'legacy' may not override .*'socket'") as caught:
        flavor_policy({FLAVOR: "socket"}, {IMAGE: "legacy"})
    assert caught.value.http_status == 403


@pytest.mark.parametrize("where", [({FLAVOR: "strict"}, {}), ({}, {IMAGE: "strict"})])
def test_an_unknown_policy_is_refused(where: tuple[dict[str, str], dict[str, str]]) -> None:
    with pytest.raises(InvalidPCINUMAAffinity, match="'strict'"):
        flavor_policy(*where)
