from __future__ import annotations

import pytest

from jetbridge.pci.lint import shadowed_specs, suspicious_keys
from tests.unit.pci.build import Facts, report, specs

BROAD, FAST = '{"vendor_id": "10de"}', '{"address": "0000:3b:00.0", "traits": "fast"}'


def test_f14_a_broad_line_before_a_specific_one() -> None:
    (shadow,) = shadowed_specs(specs(BROAD, FAST))
    assert (shadow.spec.position, shadow.by.position, shadow.certain, shadow.addresses) == (2, 1, False, ())
    assert shadow.text == (
        'device_spec line 2 {"address": "0000:3b:00.0", "traits": "fast"} comes after the broader line 1 {"vendor_id": "10de"}: '
        "only the first matching line's tags count; put the more specific line first"
    )


def test_f14_judged_by_the_hosts_devices() -> None:
    nvidia, intel = report("0000:3b:00.0"), report("0000:3b:00.0", "8086:1572")
    (shadow,) = shadowed_specs(specs(BROAD, FAST), [nvidia, report("0000:17:00.0"), report("10000:e1:00.0")])
    assert (shadow.certain, shadow.addresses) == (True, ("0000:3b:00.0",))
    assert "line 2 " + FAST + " doesn't get 0000:3b:00.0, matched already by line 1 " + BROAD in shadow.text
    assert shadowed_specs(specs(BROAD, FAST), [intel]) == []
    assert shadowed_specs(specs(BROAD, FAST), []) == []


def test_f14_some_of_a_lines_devices() -> None:
    lines = specs(BROAD, '{"address": "*:3b:*.*"}')
    reports = [report("0000:3b:00.0"), report("0000:3b:01.0", "8086:1572"), report("0000:3b:02.0")]
    (shadow,) = shadowed_specs(lines, reports)
    assert (shadow.certain, shadow.addresses) == (False, ("0000:3b:00.0", "0000:3b:02.0"))
    assert "0000:3b:00.0, 0000:3b:02.0" in shadow.text


def test_f14_the_other_order_is_right() -> None:
    assert shadowed_specs(specs(FAST, BROAD)) == []
    assert shadowed_specs(specs(FAST, BROAD), [report("0000:3b:00.0")]) == []
    exact = '{"vendor_id": "10de", "product_id": "1eb8", "traits": "t4"}'
    assert shadowed_specs(specs(exact, BROAD)) == []
    assert shadowed_specs(specs(exact, BROAD), [report("0000:3b:00.0")]) == []


def test_a_line_that_can_never_match() -> None:
    (shadow,) = shadowed_specs(specs(BROAD, '{"vendor_id": "10de", "product_id": "1eb8"}'), [])
    assert (shadow.certain, shadow.addresses) == (True, ())
    assert "matches nothing that isn't matched already by line 1" in shadow.text
    assert [found.spec.position for found in shadowed_specs(specs(BROAD, BROAD))] == [2]


def test_each_shadowed_line_names_the_first_that_shadows_it() -> None:
    found = shadowed_specs(specs("{}", BROAD, BROAD))
    assert [(shadow.spec.position, shadow.by.position) for shadow in found] == [(2, 1), (3, 1)]


def test_the_line_that_really_took_the_device_is_named() -> None:
    lines = specs('{"product_id": "1eb8"}', BROAD, FAST)
    found = shadowed_specs(lines, [report("0000:3b:00.0"), report("0000:3c:00.0", "10de:1111")])
    assert [(shadow.spec.position, shadow.by.position) for shadow in found] == [(2, 1), (3, 1)]


@pytest.mark.parametrize(
    "lines",
    [
        ('{"vendor_id": "10de"}', '{"vendor_id": "8086"}'),
        ('{"vendor_id": "10de", "product_id": "1eb8"}', '{"vendor_id": "10de", "product_id": "1eb9"}'),
        ('{"product_id": "1eb8"}', '{"product_id": "1eb9", "address": "3b:00.0"}'),
        ('{"address": "*:3b:*.*"}', '{"address": "*:3c:*.*"}'),
        ('{"vendor_id": "10de"}', '{"devname": "ens9"}'),
        ('{"devname": "ens9"}', '{"vendor_id": "10de"}'),
        ('{"address": {"bus": "3."}}', '{"address": {"bus": "4."}}'),
    ],
)
def test_lines_that_dont_meet(lines: tuple[str, str]) -> None:
    assert shadowed_specs(specs(*lines)) == []


def test_remote_managed_lines_match_less() -> None:
    managed = '{"remote_managed": "true"}'
    assert [found.certain for found in shadowed_specs(specs("{}", managed))] == [True]
    assert shadowed_specs(specs(managed, "{}")) == []
    assert [found.certain for found in shadowed_specs(specs(managed, managed))] == [True]


def test_a_pfs_line_matches_its_vfs_too() -> None:
    facts = Facts(totalvfs={"0000:3b:00.0": 4})
    pf = '{"address": "0000:3b:00.0"}'
    assert [found.certain for found in shadowed_specs(specs(pf, pf, facts=facts))] == [True]
    (found,) = shadowed_specs(specs('{"address": "*:3b:00.*"}', pf, facts=facts))
    assert found.certain is False, "the glob doesn't look at parents, so VFs elsewhere remain for the second line"
    assert [found.certain for found in shadowed_specs(specs("{}", pf, facts=facts))] == [True]
    assert shadowed_specs(specs(pf, "{}", facts=facts)) == []


@pytest.mark.parametrize(
    ("line", "key", "nearest"),
    [
        ('{"vendorid": "10de"}', "vendorid", "vendor_id"),
        ('{"physical_networks": "n1"}', "physical_networks", "physical_network"),
        ('{"trustd": "true"}', "trustd", "trusted"),
        ('{"live_migrateable": "true"}', "live_migrateable", "live_migratable"),
        ('{"Managed": "no"}', "Managed", "managed"),
        ('{"resource_clas": "X"}', "resource_clas", "resource_class"),
        ('{"dev_name": "ens1"}', "dev_name", "devname"),
    ],
)
def test_a_misspelt_key_is_named_with_the_nearest(line: str, key: str, nearest: str) -> None:
    (found,) = suspicious_keys(specs(BROAD, line))
    assert (found.spec.position, found.key, found.nearest) == (2, key, nearest)
    assert found.text == f"device_spec line 2 {line}: {key} is not a known key, {nearest} is"


@pytest.mark.parametrize("key", ["name", "device_type", "dev_type", "numa_policy", "numa_node"])
def test_an_aliases_key_does_nothing_here(key: str) -> None:
    (found,) = suspicious_keys(specs(f'{{"{key}": "x"}}'))
    assert (found.key, found.nearest) == (key, None)
    assert found.text.endswith(f"{key} belongs in [pci]alias, in [pci]device_spec it selects nothing")


def test_an_ignored_key_of_an_address() -> None:
    first, second = suspicious_keys(specs('{"address": {"bus": "3b", "func": "0", "port": "1"}}'))
    assert (first.key, first.nearest, second.key) == ("func", "function", "port")
    assert first.text.endswith(": key func of address is ignored, known are domain, bus, slot and function")


def test_private_tags_and_known_keys_pass() -> None:
    known = (
        '{"vendor_id":"10de","product_id":"*","address":{"domain":"0","bus":"3b","slot":"0","function":"0"},"physical_network":null,"trusted":"true",'
        '"remote_managed":"no","managed":"no","live_migratable":"no","resource_class":"X","traits":"a","one_time_use":"no",'
        '"rack":"r7"}'
    )
    assert suspicious_keys(specs(known)) == []
