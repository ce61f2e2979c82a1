from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetbridge.cli import completion
from jetbridge.cli.client import DEFAULT_URL, Client, connect, segment
from jetbridge.cli.failures import FAILURE, NOT_FOUND, UNREACHABLE, USAGE, CliError
from jetbridge.cli.main import run
from jetbridge.pci.device import Condition, Status


@contextmanager
def service(status: int, body: bytes) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Something that answers every GET; the headers it got are kept."""
    heard: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append({"path": self.path, **{key.lower(): value for key, value in self.headers.items()}})
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (
            404,
            {"error": {"code": "ServerNotFound", "message": "Server x could not be found."}},
            NOT_FOUND,
            "`jetbridge servers` lists",
        ),
        (
            404,
            {"error": {"message": "Compute host h could not be found."}},
            NOT_FOUND,
            "found. `jetbridge hosts` lists",
        ),
        (404, {"detail": "Not Found"}, UNREACHABLE, "there is no Jetbridge at http://127.0.0.1:"),
        (404, {"errors": [{"status": 404}]}, UNREACHABLE, "there is no Jetbridge at"),
        (403, {"error": {"code": "Forbidden", "message": "needs the role admin"}}, FAILURE, "role admin"),
        (409, {"conflictingRequest": {"code": 409, "message": "two of them"}}, FAILURE, "two of them"),
        (400, {"message": "marker is wrong", "code": "400 Bad Request", "title": "Bad Request"}, FAILURE, "marker"),
        (401, {"error": {"message": "who?"}}, FAILURE, "JETBRIDGE_USER"),
        (500, {}, FAILURE, "answered 500"),
        (200, b"<html>", UNREACHABLE, "there is no Jetbridge at"),
        (502, b"bad gateway", UNREACHABLE, "502"),
    ],
)
def test_answers_become_messages_and_exit_codes(status: int, body: Any, code: int, words: str) -> None:
    with service(status, body if isinstance(body, bytes) else json.dumps(body).encode()) as (url, _):
        with pytest.raises(CliError) as failure:
            Client(url).get("/jetbridge/v1/x")
        assert failure.value.code == code
        assert words in failure.value.message


def test_nothing_listening_says_what_to_start() -> None:
    with service(200, b"{}") as (url, _):
        pass
    with pytest.raises(CliError, match=r"nothing listens at .* `jetbridge up` \(.*: `jetbridge api`\)") as failure:
        Client(url).get("/")
    assert failure.value.code == UNREACHABLE


def test_a_default_state_folder_without_a_service_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    client = connect(None, None)
    assert client.base == DEFAULT_URL
    client.base = "http://127.0.0.1:1"
    with pytest.raises(CliError) as failure:
        client.get("/")
    assert failure.value.message == (
        f"nothing listens at http://127.0.0.1:1 (the default: {tmp_path}/jetbridge/clouds.yaml does not exist): "
        "start it with `jetbridge up` (where the services are processes of their own: `jetbridge api`), or name the --state-dir of the one that runs"
    )


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8774", "http://", "://", "http://[", "http://a b"])
def test_what_is_no_address_is_a_mistake_of_usage(url: str) -> None:
    with pytest.raises(CliError) as failure:
        Client(url).get("/")
    assert failure.value.code in (USAGE, UNREACHABLE)


def test_user_and_password_are_sent_and_loopback_uses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with service(200, b"{}") as (url, heard):
        assert Client(url, "ann", "pw").get("/x", host="a b", status=None) == {}
    assert heard[0]["authorization"] == "Basic YW5uOnB3"
    assert heard[0]["path"] in ("/x?host=a+b", "/x?host=a%20b")


def test_names_with_slashes_stay_one_part_of_the_path() -> None:
    assert segment("a/../b?c#d") == "a%2F..%2Fb%3Fc%23d"


def clouds(folder: Path, **cloud: Any) -> None:
    (folder / "clouds.yaml").write_text(json.dumps({"clouds": {"jetbridge": cloud}}))


def test_service_is_found_by_the_clouds_file_of_the_state_folder(tmp_path: Path) -> None:
    clouds(tmp_path, auth_type="none", compute_endpoint_override="http://127.0.0.1:9999/compute/v2.1")
    assert connect(None, tmp_path).base == "http://127.0.0.1:9999"
    assert connect("http://other:1/", tmp_path).base == "http://other:1"
    assert connect("http://other:1/", tmp_path / "nowhere").base == "http://other:1"


def test_a_named_state_folder_without_a_service_never_means_the_one_at_the_default_address(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=rf"{tmp_path}/typo/clouds\.yaml does not exist: .* or give --url") as failure:
        connect(None, tmp_path / "typo")
    assert failure.value.code == UNREACHABLE


def test_passwords_of_another_cloud_are_not_sent_to_a_service_that_asks_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_USERNAME", "ann")
    monkeypatch.setenv("OS_PASSWORD", "secret")
    clouds(tmp_path, auth_type="none", compute_endpoint_override="http://h:1/compute/v2.1")
    assert (connect(None, tmp_path).user, connect("http://h:1", tmp_path).password) == (None, None)
    clouds(tmp_path, auth_type="http_basic", compute_endpoint_override="http://h:1/compute/v2.1")
    assert (connect(None, tmp_path).user, connect(None, tmp_path).password) == ("ann", "secret")
    assert connect(None, tmp_path, "bob", "pw").user == "bob"


def test_tab_asks_the_service_of_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JETBRIDGE_URL", raising=False)
    monkeypatch.setenv("JETBRIDGE_STATE_DIR", str(tmp_path))
    assert completion.hosts("") == []
    with service(200, json.dumps({"hosts": [{"host": "gpu1"}, {"host": "nic1"}]}).encode()) as (url, _):
        clouds(tmp_path, auth_type="none", compute_endpoint_override=f"{url}/compute/v2.1")
        assert completion.hosts("g") == ["gpu1"]
    assert completion.statuses("un") == ["unclaimable", "unavailable", "unknown"]


def test_tab_knows_every_status() -> None:
    assert set(completion.STATUSES) == set(Status)
    assert {*completion.CONDITIONS, Condition.OK} == set(Condition)


def test_devices_of_a_host_are_counted_in_the_order_of_their_life(capsys: pytest.CaptureFixture[str]) -> None:
    host = {
        **dict.fromkeys(("host", "state", "status", "servers", "probe_error")),
        **dict.fromkeys(("vcpus_used", "vcpus", "memory_mb_used", "memory_mb", "disk_gb_used", "disk_gb"), 0),
        "forced_down": True,
        "disabled_reason": "fan",
        "reported": False,
        "report_error": "no answer",
        "devices": {"unavailable": 2, "strange": 1, "available": 34, "allocated": 6},
    }
    with service(200, json.dumps({"hosts": [host]}).encode()) as (url, _):
        assert run(["hosts", "--url", url]) == 0
    shown = capsys.readouterr().out
    assert "available=34, allocated=6, unavailable=2, strange=1" in shown
    assert "not reported to Placement yet: no answer; forced down; fan" in " ".join(shown.split())


def test_pools_show_the_tags_that_somebody_gave(capsys: pytest.CaptureFixture[str]) -> None:
    pool = dict.fromkeys(("host", "vendor_id", "product_id", "dev_type", "numa_node", "address", "count"))
    pool["tags"] = {"remote_managed": "false", "physical_network": "net1"}
    with service(200, json.dumps({"pools": [pool]}).encode()) as (url, _):
        assert run(["pools", "--url", url]) == 0
    shown = capsys.readouterr().out
    assert "physical_network=net1" in shown
    assert "remote_managed" not in shown


@pytest.mark.parametrize("text", ["", "[]", "clouds: 5", "clouds: {jetbridge: }", "{", "clouds: {other: {}}"])
def test_a_clouds_file_that_can_not_be_understood_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "clouds.yaml").write_text(text)
    with pytest.raises(CliError, match=r"clouds\.yaml"):
        connect(None, tmp_path)
