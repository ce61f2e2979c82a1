from __future__ import annotations

from typing import Any

import pytest

from jetbridge.cli.audit import agreement
from jetbridge.cli.fleet import reload_lines
from jetbridge.cli.scan import paste_lines
from jetbridge.cli.servers import explanation


def verdict(**more: Any) -> dict[str, Any]:
    base: dict[str, Any] = dict.fromkeys(("filter", "rule", "text", "request", "before", "after", "hint"))
    common = {"attempt": 1, "request_id": "req-1", "created_at": "2026-01-01T00:00:00Z", "passed": False}
    return {**base, **common, "host_count": 1, "hosts": ["h1"], **more}


def told(*verdicts: dict[str, Any], **more: Any) -> str:
    answer = {"server": "id", "name": "s", "vm_state": "error", "host": None, "fault": None, "verdicts": verdicts}
    return "\n".join(line for line, _ in explanation({**answer, **more}))


def test_a_refusal_says_filter_rule_counts_and_what_would_pass() -> None:
    text = told(
        verdict(
            filter="PciPassthroughFilter",
            rule="pci.device_type",
            text="8 devices match the ids but are type-PF",
            request="H100",
            before=8,
            after=0,
            hint="set device_type to type-PF",
            host_count=12,
            hosts=[f"h{n}" for n in range(12)],
        ),
        fault="No valid host was found.",
    )
    for words in (
        "12 hosts refused by PciPassthroughFilter [H100]: 8 devices match the ids but are type-PF",
        "(8 candidates before this rule, 0 after)",
        "rule pci.device_type",
        "would pass: set device_type to type-PF",
        "h9, and 2 more",
        "fault: No valid host was found.",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("before", "words"),
    [(2, "free (2 candidates before this rule, 0 after)"), (1, "free (1 candidate before this rule, 0 after)")],
)
def test_what_a_rule_lost_is_counted(before: int, words: str) -> None:
    assert words in told(verdict(filter="F", rule="r", text="nothing free", before=before, after=0))


def test_where_nothing_was_free_nothing_is_counted() -> None:
    assert "before this rule" not in told(verdict(filter="F", rule="r", text="nothing free", before=0, after=0))


def test_a_key_of_the_flavor_that_nobody_reads_is_told() -> None:
    assert "\nwarning: flavor f: no such key\n" in told(verdict(passed=True), warnings=["flavor f: no such key"])


def test_attempts_are_told_apart() -> None:
    text = told(verdict(passed=True), verdict(passed=True, attempt=2, request_id="req-2"))
    assert "attempt 1, 2026-01-01T00:00:00Z, req-1" in text
    assert "attempt 2, 2026-01-01T00:00:00Z, req-2" in text
    assert text.count("1 host passed every filter") == 2


def test_without_verdicts_it_says_why_there_may_be_none() -> None:
    assert "keep_days" in told()


def test_members_of_a_project_see_reasons_without_host_names() -> None:
    assert "h1" not in told(verdict(passed=True, hosts=None))


def function(address: str, kind: str | None, caution: str | None = None) -> dict[str, Any]:
    suggestion = None
    if kind:
        suggestion = {
            "alias_name": kind,
            "device_spec": f'device_spec = {{"address": "{address}"}}',
            "alias": f'alias = {{"name": "{kind}"}}',
            "flavor": f"pci_passthrough:alias={kind}:1",
            "caution": caution,
        }
    return {"address": address, "name": "card", "suggestion": suggestion}


def test_each_device_gets_its_spec_and_each_kind_one_alias() -> None:
    lines = paste_lines([function("a", "t4"), function("b", None), function("c", "t4"), function("d", "h100")])
    assert [line for line in lines if line.startswith("device_spec")] == [
        'device_spec = {"address": "a"}',
        'device_spec = {"address": "c"}',
        'device_spec = {"address": "d"}',
    ]
    assert [line for line in lines if line.startswith("alias")] == [
        'alias = {"name": "t4"}',
        'alias = {"name": "h100"}',
    ]
    assert len([line for line in lines if line.startswith("openstack flavor set")]) == 2
    assert paste_lines([function("b", None)]) == []


def test_what_somebody_has_to_decide_first_stands_as_a_comment_with_what_to_decide() -> None:
    lines = paste_lines([function("a", "nic", "only if the host can do without eth0"), function("c", "t4")])
    given = [line for line in lines if line and not line.startswith("#")]
    assert given[:3] == ["[pci]", 'device_spec = {"address": "c"}', 'alias = {"name": "t4"}']
    at = lines.index("# a card, only if the host can do without eth0:")
    assert lines[at + 1 : at + 3] == ['#device_spec = {"address": "a"}', '#alias = {"name": "nic"}']
    alone = paste_lines([function("a", "nic", "only if the host can do without eth0")])
    assert not [line for line in alone if line.startswith(("device_spec", "alias", "openstack"))]


def test_a_fault_is_told_whole() -> None:
    cut = "No valid host was found. Last failure: start_domain failed on h1: IOMMU..."
    whole = "No valid host was found. Last failure: start_domain failed on h1: IOMMU group 7 of 0000:01:00.0"
    assert f"fault: {whole}" in told(fault=cut, details=whole)
    assert f"fault: {cut}" in told(fault=cut, details=None)


def test_what_was_chosen_is_told_with_its_devices() -> None:
    text = told(verdict(passed=True, rule="chosen", text="chosen: GPU gets 0000:01:00.0"))
    assert "1 host passed every filter and was chosen: GPU gets 0000:01:00.0" in text


def test_who_may_not_see_host_names_is_told_so() -> None:
    refused = verdict(filter="PciPassthroughFilter", rule="pci.count", text="the host has no free device")
    assert "for administrators to see" in told({**refused, "hosts": None})
    assert "for administrators to see" not in told(refused)


def test_audit_says_nothing_of_hosts_that_could_not_be_asked() -> None:
    assert agreement(5, 4) == "1 of 5 hosts agree, 4 can't be asked:"
    assert (agreement(1, 0), agreement(5, 0)) == ("1 host: all ledgers agree", "5 hosts: all ledgers agree")


def test_a_host_that_left_with_servers_is_not_told_as_removed() -> None:
    answer = {"added": [], "changed": ["t4-1"], "removed": ["t4-2", "t4-3"], "kept": ["t4-2"], "unserved": []}
    assert reload_lines(answer) == [
        "removed: t4-3",
        "changed: t4-1",
        "t4-2 left the fleet but has servers: counts as down",
    ]
    nothing: dict[str, list[str]] = {"added": [], "removed": [], "changed": [], "kept": [], "unserved": []}
    assert reload_lines(nothing) == ["nothing has changed"]
