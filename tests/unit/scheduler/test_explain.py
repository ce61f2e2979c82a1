"""The sentence that a person reads when no host was found."""

from __future__ import annotations

from jetbridge.model.verdict import VerdictGroup
from jetbridge.reasons import Reason
from jetbridge.scheduler.explain import MOST_CHARACTERS, summary


def refused(host: str, by: str, reason: Reason) -> VerdictGroup:
    return VerdictGroup(by, reason, 1, (host,))


NO_GPU = Reason("pci.properties", "no free device matches GPU (10de:1eb8)", before=3, after=0)
DISABLED = Reason("service.disabled", "disabled: maintenance")


def test_by_filter_how_many_and_why() -> None:
    verdicts = [refused("a", "PciPassthroughFilter", NO_GPU), refused("b", "PciPassthroughFilter", NO_GPU)]
    assert summary([*verdicts, refused("c", "ComputeFilter", DISABLED)]) == (
        "3 hosts considered: 2 refused by PciPassthroughFilter (no free device matches GPU (10de:1eb8)), "
        "1 by ComputeFilter (disabled: maintenance)"
    )


def test_one_host() -> None:
    assert summary([refused("a", "ComputeFilter", DISABLED)]) == (
        "1 host considered: 1 refused by ComputeFilter (disabled: maintenance)"
    )


def test_hosts_that_differ_only_in_counts_are_told_together_with_one_hint() -> None:
    one = Reason("numa.cpu", "4 dedicated CPUs wanted", before=1, hint="the most is 1")
    two = Reason("numa.cpu", "4 dedicated CPUs wanted", before=2, hint="the most is 2")
    assert summary([refused("a", "F", one), refused("b", "F", two)]) == (
        "2 hosts considered: 2 refused by F (4 dedicated CPUs wanted). Hint: the most is 1"
    )


def test_the_most_frequent_reasons_first_and_the_rest_counted() -> None:
    verdicts = [refused("z", "F", Reason("r", "rare"))]
    verdicts += [refused(f"a{at}", "F", Reason("r", "frequent")) for at in range(3)]
    verdicts += [refused(f"b{at}", "F", Reason("r", "less so")) for at in range(2)]
    verdicts += [refused("c", "F", Reason("r", "another")), refused("d", "F", Reason("r", "last"))]
    assert summary(verdicts) == (
        "8 hosts considered: 8 refused by F (3: frequent; 2: less so; 1: rare; 2 for other reasons)"
    )


def test_hints_come_last_each_once() -> None:
    """A fault's message is short: what happened must not be cut off for the sake of advice."""
    verdicts = [
        refused("a", "F", Reason("r", "one", hint="do this")),
        refused("b", "F", Reason("r", "two", hint="do that")),
        refused("c", "G", Reason("r", "three", hint="do this")),
    ]
    assert summary(verdicts) == (
        "3 hosts considered: 2 refused by F (1: one; 1: two), 1 by G (three). Hints: do this; do that"
    )


def test_no_hosts_at_all() -> None:
    assert summary([]) == "No compute host is known: start an agent, and see that it reports."


def test_it_is_never_endless() -> None:
    verdicts = [refused("a", f"Filter{at}", Reason("r", "x" * 200)) for at in range(20)]
    text = summary(verdicts)
    assert len(text) == MOST_CHARACTERS
    assert text.endswith("…")


def test_where_all_devices_of_an_alias_are_in_use_other_devices_are_no_hint() -> None:
    busy = Reason("pci.properties", "no free device matches T4", request="T4", hint="one differs only in product_id")
    typo = Reason("pci.properties", "no free device matches X", request="X", hint="two differ only in product_id")
    known = {"T4": "8 devices of T4 in all, none of them free", "A40": "1 device of A40 in all, 1 of them free"}
    assert summary([refused("a", "F", busy)], known) == (
        "1 host considered: 1 refused by F (no free device matches T4). 8 devices of T4 in all, none of them free"
    )
    assert summary([refused("a", "F", typo)], known).endswith(". Hint: two differ only in product_id")
    assert "in all" not in summary([refused("a", "G", Reason("ram", "4 MiB wanted"))], known)


def test_f15_advice_for_the_hosts_that_have_the_devices_comes_before_that_for_the_many_that_have_others() -> None:
    others = Reason("pci.properties", "no free device matches H100", hint="one differs only in product_id")
    cards = Reason("pci.pfs", "8 devices match the ids but are type-PF", hint="set device_type to type-PF in the alias")
    verdicts = [refused("t1", "F", others), refused("t2", "F", others), refused("h1", "F", cards)]
    assert summary(verdicts).endswith(
        ". Hints: set device_type to type-PF in the alias; one differs only in product_id"
    )
