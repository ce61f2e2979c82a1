from __future__ import annotations

from pathlib import Path

import pytest

from jetbridge.api import image
from jetbridge.api.guards import check_listen, host_of, is_loopback
from jetbridge.config.settings import Settings
from jetbridge.errors import InvalidConfiguration
from tests.unit.api.doors import PasswordFile, open_door


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "localhost:8774",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.9.8.7",
        "[::1]",
        "[::1]:8774",
    ],
)
def test_names_of_this_machine_are_served_on_loopback_whatever_the_port(tmp_path: Path, host: str) -> None:
    with open_door(tmp_path, [image.router]) as door:
        assert door.get("/image/v2/images", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8774",
        "evil.example:127.0.0.1",
        "10.0.0.1",
        "0.0.0.0",
        "[fe80::1]",
        "localhost@evil.example",
        "",
        "[",
    ],
)
def test_a_foreign_host_is_answered_403_on_loopback(tmp_path: Path, host: str) -> None:
    with open_door(tmp_path, [image.router]) as door:
        answer = door.get("/image/v2/images", headers={"Host": host})
        assert answer.status_code == 403
        assert "Host" in answer.json()["message"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("http://[::1]:9", 200),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
def test_origin_must_be_this_machine_on_loopback(tmp_path: Path, origin: str, status: int) -> None:
    with open_door(tmp_path, [image.router]) as door:
        assert door.get("/image/v2/images", headers={"Origin": origin}).status_code == status


def test_on_other_addresses_the_origin_must_be_the_host_asked(tmp_path: Path) -> None:
    people = PasswordFile(tmp_path / "users")
    ann = people.add("ann", "pw", "p", "member")
    with open_door(
        tmp_path, [image.router], settings=people.settings, listen="0.0.0.0", url="http://gpu1:8774"
    ) as door:
        assert door.get("/image/v2/images", headers=ann).status_code == 200
        assert door.get("/image/v2/images", headers={**ann, "Origin": "http://GPU1"}).status_code == 200
        assert door.get("/image/v2/images", headers={**ann, "Origin": "http://evil.example"}).status_code == 403
        assert door.get("/image/v2/images", headers={**ann, "Origin": "http://localhost"}).status_code == 403


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.53", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_passwords(listen: str) -> None:
    check_listen(Settings(), listen)


@pytest.mark.parametrize("listen", ["0.0.0.0", "::", "192.168.1.5", "gpu1.example", ""])
def test_other_addresses_are_refused_without_passwords(listen: str) -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        check_listen(Settings(), listen)
    assert "http_basic_auth_user_file" in refusal.value.message
    with pytest.raises(InvalidConfiguration):
        check_listen(Settings(auth_strategy="http_basic"), listen)
    check_listen(Settings(auth_strategy="http_basic", http_basic_auth_user_file=Path("users")), listen)


@pytest.mark.parametrize(
    ("header", "host"),
    [("a:1", "a"), ("a", "a"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("::1", "::1"), ("a:b:c", "a:b:c")],
)
def test_host_of_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


def test_no_name_that_can_mean_another_machine_is_loopback() -> None:
    assert not any(map(is_loopback, ["localhost.example", "127.0.0.1.example", "2130706433", "0", "::ffff:10.0.0.1"]))
