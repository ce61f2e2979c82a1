"""The config drive, read back from the image."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pycdlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetbridge.errors import Invalid
from jetbridge.model.server import NetworkRequest
from jetbridge.virt.config_drive import config_drive_files
from jetbridge.virt.files import create_config_drive
from tests.unit.virt.guests import SERVER

KEY = "ssh-ed25519 AAAAC3Nza someone@example"
NIC = NetworkRequest("default", "fa:16:3e:00:00:01", tag="lan")


def read_back(path: Path, names: str) -> tuple[str, Mapping[str, bytes]]:
    """Label and files as one of the image's name systems (rr, joliet) shows them."""
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    try:
        found = {}
        for folder, _, files in iso.walk(**{f"{names}_path": "/"}):
            for file in files:
                content = io.BytesIO()
                iso.get_file_from_iso_fp(content, **{f"{names}_path": f"{folder.rstrip('/')}/{file}"})
                found[f"{folder.rstrip('/')}/{file}".lstrip("/")] = content.getvalue()
        return iso.pvd.volume_identifier.decode().strip(), found
    finally:
        iso.close()


@pytest.mark.parametrize("names", ["rr", "joliet"])
def test_image_holds_key_user_data_and_networks(tmp_path: Path, names: str) -> None:
    script = b"#!/bin/sh\necho \xff\n"
    server = replace(
        SERVER,
        key_name="laptop",
        user_data=base64.b64encode(script).decode(),
        networks=(NIC,),
        metadata={"role": "train"},
        hostname="trainer-co",
    )
    files = config_drive_files(server, public_key=KEY, random_seed=b"1234")
    create_config_drive(files, tmp_path / "deep" / "drive.iso")
    label, found = read_back(tmp_path / "deep" / "drive.iso", names)
    assert label == "config-2"
    assert found == files
    assert found["openstack/latest/user_data"] == script
    meta = json.loads(found["openstack/latest/meta_data.json"])
    assert meta["uuid"] == SERVER.uuid
    assert meta["hostname"] == "trainer-co"
    assert meta["public_keys"] == {"laptop": KEY}
    assert meta["meta"] == {"role": "train"}
    assert base64.b64decode(meta["random_seed"]) == b"1234"
    network = json.loads(found["openstack/latest/network_data.json"])
    assert [link["ethernet_mac_address"] for link in network["links"]] == [NIC.mac]
    assert [entry["link"] for entry in network["networks"]] == [network["links"][0]["id"]]


def test_without_key_or_user_data_neither_is_there() -> None:
    files = config_drive_files(SERVER)
    assert "openstack/latest/user_data" not in files
    assert not {"public_keys", "keys", "random_seed"} & set(json.loads(files["openstack/latest/meta_data.json"]))


def test_user_data_that_is_not_base64_is_refused() -> None:
    with pytest.raises(Invalid, match="user_data"):
        config_drive_files(replace(SERVER, user_data="#!/bin/sh"))


def test_only_the_owner_may_read_the_drive(tmp_path: Path) -> None:
    create_config_drive({"a": b"secret"}, tmp_path / "drive.iso")
    assert (tmp_path / "drive.iso").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["drive.iso"]


names = st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True).filter(lambda name: name.strip(".") != "")


@given(files=st.dictionaries(st.tuples(names, names).map(lambda pair: f"x{pair[0]}/f{pair[1]}"), st.binary(max_size=3000), max_size=8))  # fmt: skip
def test_any_files_are_read_back(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    path = tmp_path_factory.mktemp("drive") / "drive.iso"
    create_config_drive(files, path)
    assert read_back(path, "rr")[1] == files
