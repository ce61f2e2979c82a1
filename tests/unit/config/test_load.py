from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jetbridge.config.load import load_settings
from jetbridge.config.options import SETTINGS
from jetbridge.config.settings import Settings
from jetbridge.config.type_sections import TYPE_SETTINGS
from jetbridge.errors import InvalidConfiguration
from jetbridge.mdev.config import TypeOptions

CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "config_load.yaml").read_text())


def written(case: dict[str, Any], folder: Path) -> list[Path]:
    paths = []
    for name, text in case["files"].items():
        (folder / name).write_text(text)
        paths.append(folder / name)
    return paths


def differences(settings: Settings) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        value = getattr(settings, field.name)
        if field.name == "mdev_types":
            if value:
                shown[field.name] = {name: dict(_said(options)) for name, options in value.items()}
        elif field.name != "origins" and value != field.default:
            shown[field.name] = (
                list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
            )
    return shown


def _said(options: TypeOptions) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(TypeOptions):
        value = getattr(options, field.name)
        if value != field.default:
            yield field.name, list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_configuration_files(case: dict[str, Any], tmp_path: Path) -> None:
    paths = written(case, tmp_path)
    if "error" in case:
        with pytest.raises(InvalidConfiguration) as caught:
            load_settings(paths)
        assert re.search(case["error"], str(caught.value)), str(caught.value)
        return
    loaded = load_settings(paths)
    assert differences(loaded.settings) == case["settings"]
    expected = case.get("warnings", [])
    assert len(loaded.warnings) == len(expected), loaded.warnings
    for pattern, warning in zip(expected, loaded.warnings, strict=True):
        assert re.search(pattern, warning), warning


def test_secrets_of_another_system_are_not_repeated(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if "hunter2" in str(case["files"]))
    assert "hunter2" not in "".join(load_settings(written(case, tmp_path)).warnings)


def test_every_value_knows_its_file(tmp_path: Path) -> None:
    first, second = tmp_path / "nova.conf", tmp_path / "jetbridge.conf"
    first.write_text('[pci]\nalias = {"name": "a"}\n[scheduler]\nmax_attempts = 1\n')
    second.write_text('[pci]\nalias = {"name": "b"}\n[scheduler]\nmax_attempts = 2\n')
    assert load_settings([first, second]).settings.origins == {
        ("pci", "alias"): f"{first}, {second}",
        ("scheduler", "max_attempts"): str(second),
    }


@pytest.mark.parametrize(
    "value",
    [
        "localhost:8778",
        "controller",
        "/placement",
        "ftp://controller:8778",
        "http:controller:8778",
        "http://",
        "http://:8778",
        "http://a controller:8778",
        "http://controller:87780",
        "http://controller:eight",
        "http://[::1:8778",
    ],
)
@pytest.mark.parametrize("group", ["placement", "neutron", "cyborg"])
@pytest.mark.parametrize("name", ["endpoint_override", "auth_url"])
def test_an_address_that_nobody_can_ask_is_refused(tmp_path: Path, group: str, name: str, value: str) -> None:
    path = tmp_path / "jetbridge.conf"
    path.write_text(f"[{group}]\n{name} = {value}\n")
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings([path])
    assert f"{path}: [{group}]{name} = {value!r}: not the URL of a service" in caught.value.message
    assert "; write a URL such as http://controller:" in caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        "http://controller:8778",
        "HTTPS://controller/placement/",
        "http://[2001:db8::1]:8778",
        "http://192.0.2.7:6666/v2",
        "http://a_b.example:9696/v2.0/%(project_id)s",
        "http://a/100%%",
    ],
)
def test_an_address_that_can_be_asked_is_taken_as_it_is(tmp_path: Path, value: str) -> None:
    path = tmp_path / "jetbridge.conf"
    path.write_text(f"[cyborg]\nendpoint_override = {value}\n")
    assert load_settings([path]).settings.cyborg_endpoint_override == value


@pytest.mark.parametrize("value", ["http://[fe80::1%25eth0]:1", "http://a/100%", "http://a/%d"])
def test_a_percent_sign_that_the_client_would_stumble_over_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "jetbridge.conf"
    path.write_text(f"[placement]\nendpoint_override = {value}\n")
    with pytest.raises(
        InvalidConfiguration, match=r"\[placement\]endpoint_override = .*: write %% for one that is meant"
    ):
        load_settings([path])
    path.write_text(f"[placement]\nauth_url = {value}\n")
    load_settings([path])  # nothing is filled in there


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"none\.conf: the file does not exist"):
        load_settings([tmp_path / "none.conf"])
    (tmp_path / "binary.conf").write_bytes(b"[pci]\nalias = \xff\xfe\n")
    with pytest.raises(InvalidConfiguration, match=r"binary\.conf: can't be read"):
        load_settings([tmp_path / "binary.conf"])
    with pytest.raises(InvalidConfiguration, match="can't be read"):
        load_settings([tmp_path])


def test_every_setting_has_an_option_and_a_help_that_explains() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)} - {"origins", "mdev_types"}
    assert {setting.field for setting in SETTINGS} == fields
    assert len({(setting.group, setting.name) for setting in SETTINGS}) == len(SETTINGS)
    assert {setting.field for setting in TYPE_SETTINGS} == {field.name for field in dataclasses.fields(TypeOptions)}
    for setting in (*SETTINGS, *TYPE_SETTINGS):
        assert len(setting.option.help) > 20, setting.label
        assert setting.option.help.endswith("."), setting.label
