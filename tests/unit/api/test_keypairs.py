from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.unit.api.clouds import Cloud, message, open_cloud
from tests.unit.api.doors import PasswordFile

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f someone@here"
FINGERPRINT = "0f:a2:0a:d7:38:3e:65:45:08:6b:63:84:1c:ff:dc:ba"  # as `ssh-keygen -l -E md5` prints it


def make(cloud: Cloud, *, version: str = "2.1", headers: Any = None, **pair: Any) -> Any:
    return cloud.ask("POST", "/os-keypairs", {"keypair": {"name": "k", **pair}}, version=version, headers=headers)


def test_a_given_key_is_kept(cloud: Cloud) -> None:
    made = make(cloud, public_key=ED25519).json()["keypair"]
    assert made["public_key"] == ED25519
    assert made["fingerprint"] == FINGERPRINT
    assert "private_key" not in made
    shown = cloud.get("/os-keypairs/k").json()["keypair"]
    assert shown["fingerprint"] == made["fingerprint"]
    assert cloud.get("/os-keypairs").json()["keypairs"][0]["keypair"]["name"] == "k"
    assert make(cloud, public_key=ED25519).status_code == 409


def test_a_generated_key_fits_its_private_part(cloud: Cloud) -> None:
    made = make(cloud).json()["keypair"]
    private = serialization.load_ssh_private_key(made["private_key"].encode(), None)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert made["public_key"].startswith(public.decode())
    assert "private_key" not in cloud.get("/os-keypairs/k").json()["keypair"]


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()).public_key(),
        rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key(),
    ],
    ids=["ecdsa", "rsa"],
)
def test_other_kinds_of_keys_are_taken(cloud: Cloud, key: Any) -> None:
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    assert make(cloud, public_key=f"{line} me\n").status_code == 200


@pytest.mark.parametrize("key", ["nonsense", "ssh-rsa", "ssh-rsa !!!", "ssh-ed25519 AAAA", "-----BEGIN RSA", " ", ""])
def test_what_is_no_public_key_is_refused(cloud: Cloud, key: str) -> None:
    answer = make(cloud, public_key=key)
    assert answer.status_code == 400
    assert "public_key" in message(answer)


def test_names_types_and_versions(cloud: Cloud) -> None:
    assert make(cloud, name="a/b", public_key=ED25519).status_code == 400
    assert make(cloud, name="a@b.c", public_key=ED25519, version="2.91").status_code == 400
    assert make(cloud, name="a@b.c", public_key=ED25519, version="2.92").status_code == 201
    assert make(cloud, type="ssh", version="2.1").status_code == 400
    assert make(cloud, type="ssh", version="2.2").json()["keypair"]["type"] == "ssh"
    refused = make(cloud, name="x", type="x509", version="2.2")
    assert refused.status_code == 400
    assert "'x509'" in message(refused)
    missing = make(cloud, name="y", version="2.92")
    assert missing.status_code == 400
    assert "'public_key' is a required property" in message(missing)
    assert cloud.ask("DELETE", "/os-keypairs/k").status_code == 202
    assert cloud.ask("DELETE", "/os-keypairs/a@b.c", version="2.2").status_code == 204
    assert cloud.ask("DELETE", "/os-keypairs/k").status_code == cloud.get("/os-keypairs/k").status_code == 404


def test_pages(cloud: Cloud) -> None:
    for name in "abc":
        assert make(cloud, name=name, public_key=ED25519).status_code == 200
    page = cloud.get("/os-keypairs?limit=2", version="2.35").json()
    assert [each["keypair"]["name"] for each in page["keypairs"]] == ["a", "b"]
    assert "marker=b" in page["keypairs_links"][0]["href"]
    assert len(cloud.get("/os-keypairs?limit=2", version="2.34").json()["keypairs"]) == 3


def test_keys_belong_to_users(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "passwords")
    admin = users.add("admin", "a", "admin", "admin")
    alice, bob = users.add("alice", "a", "red", "member"), users.add("bob", "b", "red", "member")
    with open_cloud(tmp_path, settings=users.settings) as cloud:
        made = make(cloud, public_key=ED25519, version="2.10", headers=alice).json()["keypair"]
        assert cloud.get("/os-keypairs/k", headers=bob).status_code == 404
        assert make(cloud, public_key=ED25519, headers=bob).status_code == 200
        path = f"/os-keypairs/k?user_id={made['user_id']}"
        assert cloud.get(path, version="2.10", headers=bob).status_code == 403
        assert cloud.get(path, version="2.10", headers=admin).json()["keypair"]["user_id"] == made["user_id"]
        assert cloud.ask("DELETE", path, version="2.10", headers=bob).status_code == 403
        assert cloud.ask("DELETE", path, version="2.10", headers=admin).status_code == 204
        other = {"name": "n", "public_key": ED25519, "user_id": made["user_id"]}
        assert make(cloud, **other, version="2.10", headers=bob).status_code == 403
        assert make(cloud, **other, version="2.9", headers=admin).status_code == 400
