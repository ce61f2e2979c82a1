from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.api.clouds import Cloud, message, open_cloud
from tests.unit.api.doors import PasswordFile

CASES = yaml.safe_load((Path(__file__).parents[2] / "cases" / "flavor_extra_specs.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['key']}={case['value']}@{case['version']}")
def test_f11_extra_specs_are_checked_when_set(shared: Cloud, case: dict[str, Any]) -> None:
    flavor = shared.flavor(str(uuid.uuid4()))
    key, value, version = case["key"], case["value"], case["version"]
    answer = shared.ask("POST", f"/flavors/{flavor}/os-extra_specs", {"extra_specs": {key: value}}, version=version)
    kept = shared.get(f"/flavors/{flavor}/os-extra_specs").json()["extra_specs"]
    if case.get("accepted"):
        assert answer.json() == {"extra_specs": {key: value}}
        assert kept == {key: value}
    else:
        assert answer.status_code == 400
        for words in case["refused"]:
            assert words in message(answer)
        assert kept == {}


def test_f11_one_extra_spec_is_checked_too(cloud: Cloud) -> None:
    cloud.flavor("f")
    path = "/flavors/f/os-extra_specs/pci_passthrough:alias"
    answer = cloud.ask("PUT", path, {"pci_passthrough:alias": "GPU"})
    assert answer.status_code == 400
    assert "'GPU'" in message(answer)
    assert cloud.ask("PUT", path, {"pci_passthrough:alias": "GPU:1"}).json() == {"pci_passthrough:alias": "GPU:1"}
    assert cloud.get(path).json() == {"pci_passthrough:alias": "GPU:1"}
    assert cloud.ask("DELETE", path).status_code == 200
    assert cloud.get(path).status_code == 404


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("pci_passthru:alias", "GPU:1", "pci_passthrough:alias"),
        ("pci_passthrough:aliases", "GPU:1", "pci_passthrough:alias"),
        ("PCI_passthrough:alias", "GPU:1", "pci_passthrough:alias"),
        ("accel:device_profil", "infer", "accel:device_profile"),
        ("hw:numa_node", "2", "hw:numa_nodes"),
        ("group_polic", "isolate", "group_policy"),
        ("resource:VGPU", "1", "resources:VGPU"),
        ("resorce:VGPU", "1", "resources:VGPU"),
    ],
)
def test_a_misspelt_key_is_kept_and_told(
    cloud: Cloud, caplog: pytest.LogCaptureFixture, key: str, value: str, meant: str
) -> None:
    sentence = f"extra spec {key} is not known and has no effect: did you mean {meant}?"
    cloud.flavor("f", {key: value})
    assert [record.levelname for record in caplog.records if sentence in record.message] == ["WARNING"]
    caplog.clear()
    server = cloud.booted("f")
    assert [record.server for record in caplog.records if sentence in record.message] == [server]
    told = cloud.client.get(f"/jetbridge/v1/servers/{server}/verdicts").json()
    assert told["warnings"] == [f"flavor f: {sentence}"]


def test_keys_that_are_read_or_the_operators_own_are_not_told(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    read = {"pci_passthrough:alias": "GPU:1", "hw:numa_nodes": "1", "hw:numa_cpus.0": "0", "hw:numa_mem.0": "512"}
    own = {
        "my:note": "x",
        "quota:cpu_shares": "9",
        "aggregate_instance_extra_specs:ssd": "true",
        "hw:tpm_version": "2.0",
    }
    groups = {"resourcesA:VGPU": "0", "group_policy": "none", "trait:CUSTOM_A": "forbidden"}
    cloud.flavor("f", {**read, **own, **groups})
    server = cloud.booted("f")
    assert cloud.client.get(f"/jetbridge/v1/servers/{server}/verdicts").json()["warnings"] == []
    assert "did you mean" not in caplog.text


def test_what_flavor_set_took_unchecked_is_refused_when_a_server_is_made(cloud: Cloud) -> None:
    cloud.flavor("f", {"resources:no-class": "1"})
    refused = cloud.boot("f")
    assert refused.status_code == 400
    assert "'no-class' is no resource class" in message(refused)


def test_a_flavor_has_the_fields_of_its_version(cloud: Cloud) -> None:
    cloud.flavor("f", {"pci_passthrough:alias": "GPU:1"}, swap=0)

    def fields(version: str) -> dict[str, Any]:
        shown: dict[str, Any] = cloud.get("/flavors/f", version=version).json()["flavor"]
        return shown

    oldest, with_description = fields("2.1"), fields("2.55")
    assert oldest["swap"] == ""
    assert "description" not in oldest
    assert "extra_specs" not in oldest
    assert with_description["description"] is None
    assert "extra_specs" not in with_description
    assert fields("2.61")["extra_specs"] == {"pci_passthrough:alias": "GPU:1"}
    assert fields("2.74")["swap"] == ""
    assert fields("2.75")["swap"] == 0


def test_fields_of_newer_versions_are_refused_by_name(cloud: Cloud) -> None:
    body = {"flavor": {"name": "f", "ram": 1, "vcpus": 1, "disk": 0, "description": "x"}}
    answer = cloud.ask("POST", "/flavors", body, version="2.54")
    assert answer.status_code == 400
    assert "'description'" in message(answer)
    assert cloud.ask("POST", "/flavors", body, version="2.55").json()["flavor"]["description"] == "x"


def test_name_and_id_are_unique(cloud: Cloud) -> None:
    cloud.flavor("f")
    for body in ({"name": "f", "id": "other"}, {"name": "other", "id": "f"}):
        answer = cloud.ask("POST", "/flavors", {"flavor": {"ram": 1, "vcpus": 1, "disk": 0, **body}})
        assert answer.status_code == 409
        assert "already exists" in message(answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", " "),
        ("name", "x" * 256),
        ("name", "bell\x07"),
        ("ram", 0),
        ("ram", -1),
        ("ram", "many"),
        ("ram", 2**31),
        ("vcpus", 0),
        ("vcpus", 1.5),
        ("disk", -1),
        ("id", "a/b"),
        ("id", "a" * 256),
        ("rxtx_factor", 0),
        ("swap", -1),
        ("OS-FLV-EXT-DATA:ephemeral", -1),
        ("os-flavor-access:is_public", "maybe"),
    ],
)
def test_wrong_values_are_refused_by_name(shared: Cloud, field: str, value: object) -> None:
    body = {"name": "f", "ram": 1, "vcpus": 1, "disk": 0, field: value}
    answer = shared.ask("POST", "/flavors", {"flavor": body})
    assert answer.status_code == 400
    assert field in message(answer)


def test_numbers_may_be_written_as_text_and_an_id_is_made(cloud: Cloud) -> None:
    body = {"name": "f", "ram": "512", "vcpus": "2", "disk": "0", "id": None}
    made = cloud.ask("POST", "/flavors", {"flavor": body}).json()["flavor"]
    assert (made["ram"], made["vcpus"], len(made["id"])) == (512, 2, 36)


def test_lists_filter_sort_and_page(cloud: Cloud) -> None:
    for name, ram in (("a", 512), ("b", 2048), ("c", 1024)):
        cloud.flavor(name, ram=ram)

    def ids(query: str) -> list[str]:
        return [flavor["id"] for flavor in cloud.get(f"/flavors{query}").json()["flavors"]]

    assert ids("") == ["a", "b", "c"]
    assert ids("?minRam=1000") == ["b", "c"]
    assert ids("?sort_key=memory_mb&sort_dir=desc") == ["b", "c", "a"]
    first = cloud.get("/flavors/detail?limit=2").json()
    assert [flavor["id"] for flavor in first["flavors"]] == ["a", "b"]
    assert "marker=b" in first["flavors_links"][0]["href"]
    assert ids("?limit=2&marker=b") == ["c"]
    for bad in ("?sort_key=colour", "?sort_dir=up&sort_key=name", "?limit=x", "?marker=nope", "?is_public=maybe"):
        assert cloud.get(f"/flavors{bad}").status_code == 400, bad


def test_unknown_query_parameters_are_refused_from_2_75(cloud: Cloud) -> None:
    assert cloud.get("/flavors?colour=red", version="2.74").status_code == 200
    answer = cloud.get("/flavors?colour=red", version="2.75")
    assert answer.status_code == 400
    assert "'colour'" in message(answer)


def test_description_is_all_that_changes_and_only_from_2_55(cloud: Cloud) -> None:
    cloud.flavor("f")
    body = {"flavor": {"description": "new"}}
    assert cloud.ask("PUT", "/flavors/f", body, version="2.54").status_code == 404
    assert cloud.ask("PUT", "/flavors/f", body, version="2.55").json()["flavor"]["description"] == "new"
    assert cloud.ask("PUT", "/flavors/f", {"flavor": {"name": "g"}}, version="2.55").status_code == 400
    assert cloud.ask("PUT", "/flavors/nope", body, version="2.55").status_code == 404


def test_deleting_answers_202_once(cloud: Cloud) -> None:
    cloud.flavor("f")
    assert cloud.ask("DELETE", "/flavors/f").status_code == 202
    assert cloud.ask("DELETE", "/flavors/f").status_code == 404


def test_private_flavors_are_for_who_has_access(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "passwords")
    admin, guest = users.add("admin", "a", "admin", "admin"), users.add("guest", "g", "guests", "member")
    with open_cloud(tmp_path, settings=users.settings) as cloud:
        body = {"name": "f", "id": "f", "ram": 1, "vcpus": 1, "disk": 0, "os-flavor-access:is_public": False}
        assert cloud.ask("POST", "/flavors", {"flavor": body}, headers=guest).status_code == 403
        assert cloud.ask("POST", "/flavors", {"flavor": body}, headers=admin).status_code == 200
        guests = cloud.client.get("/identity/v3/auth/projects", headers=guest).json()["projects"][0]["id"]

        assert cloud.get("/flavors/f", headers=guest).status_code == 404
        assert cloud.get("/flavors", headers=guest).json()["flavors"] == []
        assert cloud.get("/flavors?is_public=None", headers=admin).json()["flavors"][0]["id"] == "f"

        grant = {"addTenantAccess": {"tenant": guests}}
        granted = cloud.ask("POST", "/flavors/f/action", grant, headers=admin)
        assert granted.json() == {"flavor_access": [{"flavor_id": "f", "tenant_id": guests}]}
        assert cloud.ask("POST", "/flavors/f/action", grant, headers=admin).status_code == 409
        assert cloud.get("/flavors/f", headers=guest).status_code == 200
        assert cloud.get("/flavors", headers=guest).json()["flavors"][0]["id"] == "f"
        assert cloud.get("/flavors/f/os-flavor-access", headers=guest).status_code == 403
        specs = {"extra_specs": {"my:note": "x"}}
        assert cloud.ask("POST", "/flavors/f/os-extra_specs", specs, headers=guest).status_code == 403

        revoke = {"removeTenantAccess": {"tenant": guests}}
        assert cloud.ask("POST", "/flavors/f/action", revoke, headers=admin).json() == {"flavor_access": []}
        assert cloud.ask("POST", "/flavors/f/action", revoke, headers=admin).status_code == 404
        assert cloud.ask("POST", "/flavors/f/action", {"resize": {}}, headers=admin).status_code == 400


def test_public_flavors_have_no_access_list(cloud: Cloud) -> None:
    cloud.flavor("f")
    assert cloud.get("/flavors/f/os-flavor-access").status_code == 404
    answer = cloud.ask("POST", "/flavors/f/action", {"addTenantAccess": {"tenant": "x"}}, version="2.7")
    assert answer.status_code == 409
