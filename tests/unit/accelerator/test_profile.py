from __future__ import annotations

from typing import Any

import pytest

from jetbridge.accelerator.profile import check_profile, devices_of, request_groups
from jetbridge.errors import Invalid
from jetbridge.model.request_group import RequestGroup

OURS = frozenset({"OWNER_NOVA"})


def test_each_group_asks_one_provider() -> None:
    profile = [
        {"resources:FPGA": "1", "trait:CUSTOM_CARD_A": "required"},
        {"resources:PGPU": "1", "accel:bitstream_id": "x", "trait:CUSTOM_OLD": "forbidden"},
    ]
    assert request_groups(profile) == (
        (
            RequestGroup("device_profile_0", {"FPGA": 1}, frozenset({"CUSTOM_CARD_A"}), OURS),
            RequestGroup("device_profile_1", {"PGPU": 1}, frozenset(), OURS | {"CUSTOM_OLD"}),
        ),
        (),
    )


def test_a_port_names_itself() -> None:
    (group,), _ = request_groups([{"resources:FPGA": "1"}], port_id="aa11")
    assert group.requester_id == "device_profile_0aa11"


def test_keys_of_other_forms_are_ignored() -> None:  # semantics: case 117
    (group,), warnings = request_groups([{"resources:FPGA": "1", "accel:function_id": "f"}])
    assert (group.resources, warnings) == ({"FPGA": 1}, ())


def test_the_suffix_says_nothing() -> None:
    (group,), _ = request_groups([{"resources1:FPGA": "1", "resources2:FPGA": "2", "trait1:CUSTOM_A": "required"}])
    assert (group.resources, group.required) == ({"FPGA": 3}, {"CUSTOM_A"})


@pytest.mark.parametrize(
    "entry",
    [{"resources:GPUS": "1"}, {"resources:FPGA": "-1"}, {"resources:FPGA": "x"}, {"trait:CUSTOM_A": "maybe"}],
)
def test_what_makes_no_sense_is_left_out_and_told(entry: dict[str, str]) -> None:
    (group,), (warning,) = request_groups([{"resources:PGPU": "1", **entry}])
    assert (group.resources, group.required) == ({"PGPU": 1}, frozenset())
    assert next(iter(entry)) in warning


def test_a_group_asks_for_so_many_devices() -> None:
    assert devices_of({"resources:PGPU": "2", "resources:FPGA": "1", "trait:CUSTOM_A": "required"}) == 3


def test_a_profile_is_kept_trimmed_and_as_text() -> None:
    kept = check_profile("infer-1", [{"resources: PGPU ": 1, "trait: CUSTOM_A": "required"}])  # type: ignore[dict-item]
    assert kept == ({"resources:PGPU": "1", "trait:CUSTOM_A": "required"},)


@pytest.mark.parametrize(
    ("name", "groups", "said"),
    [
        ("in fer", [{"resources:PGPU": "1"}], "name 'in fer'"),
        ("a", [], "groups is empty"),
        ("a", [{"trait:CUSTOM_A": "required"}], "asks for no device"),
        ("a", [{"resources:PGPU": "0"}], "value '0' of resources:PGPU"),
        ("a", [{"resources:PGPU": "one"}], "value 'one' of resources:PGPU"),
        ("a", [{"resources:GPUS": "1"}], "'GPUS'"),
        ("a", [{"resources:PGPU": "1", "trait:CUSTOM_A": "yes"}], "value 'yes'"),
        ("a", [{"resources:PGPU": "1", "trait:lower": "required"}], "'lower'"),
        ("a", [{"resources:PGPU": "1", "color:red": "1"}], "key 'color:red'"),
        ("a", [{"resources:PGPU": "65"}], "more than 64 devices"),
        ("a", [{"resources:PGPU": "1", "resources: PGPU": "2"}], "resources:PGPU is there twice"),
    ],
)
def test_a_wrong_profile_is_refused_by_name(name: str, groups: list[Any], said: str) -> None:
    with pytest.raises(Invalid, match="evice profile") as refused:
        check_profile(name, groups)
    assert said in refused.value.message
