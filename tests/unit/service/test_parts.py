"""State folder, log lines, ticker, HTTP address."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from fastapi import FastAPI

from jetbridge.errors import JetbridgeError
from jetbridge.service.http import START_SECONDS, HttpServer, leads_to
from jetbridge.service.logs import LineFormatter, log_to_file, stop_logging
from jetbridge.service.statedir import StateDir, StateDirInUse, write_clouds
from jetbridge.service.ticker import Ticker


def line(message: str, **extra: str | None) -> str:
    record = logging.LogRecord("jetbridge.x", logging.INFO, "x.py", 1, message, (), None)
    record.__dict__.update(extra)
    return LineFormatter().format(record)


def test_a_line_names_request_and_server_where_it_has_them() -> None:
    assert line("hello").endswith(" INFO jetbridge.x hello")
    text = line("hello", request_id="req-1", server="u-1")
    assert text.endswith(" INFO jetbridge.x [req-1] [instance: u-1] hello")
    assert line("hello", name="uvicorn.error").endswith(" INFO uvicorn hello")
    assert line("hello", request_id=None, server="u-1").endswith(" jetbridge.x [instance: u-1] hello")


def test_log_lines_go_to_the_file_until_logging_stops(tmp_path: Path) -> None:
    handler = log_to_file(tmp_path / "new" / "jetbridge.log")
    logging.getLogger("jetbridge.test").info("one")
    stop_logging(handler)
    logging.getLogger("jetbridge.test").info("two")
    text = (tmp_path / "new" / "jetbridge.log").read_text()
    assert "one" in text
    assert "two" not in text


def test_a_log_on_a_full_disk_says_so_once_and_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    handler = log_to_file(Path("/dev/full"))
    for _ in range(3):
        logging.getLogger("jetbridge.test").info("one")
    stop_logging(handler)
    told = capsys.readouterr().err
    assert told.count("/dev/full can't be written: [Errno 28] No space left on device") == 1
    assert "Traceback" not in told


def test_a_state_folder_is_for_one_process_at_a_time_and_names_it(tmp_path: Path) -> None:
    first, second = StateDir(tmp_path / "state"), StateDir(tmp_path / "state")
    first.take()
    with pytest.raises(StateDirInUse, match=r"is used by another jetbridge \(process \d+\)"):
        second.take()
    first.release()
    second.take()
    second.release()
    second.release()


def test_a_state_folder_is_free_again_after_its_process_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path; from jetbridge.service.statedir import StateDir;"
        "StateDir(Path(sys.argv[1])).take(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / "lock").exists()
    state = StateDir(tmp_path)
    state.take()
    state.release()


def test_a_state_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JetbridgeError, match="--state-dir"):
        StateDir(tmp_path / "file" / "state").take()


@pytest.mark.parametrize("strategy", ["none", "http_basic"])
def test_clouds_yaml_has_an_endpoint_per_service_and_no_password(tmp_path: Path, strategy: str) -> None:
    write_clouds(tmp_path / "clouds.yaml", "http://127.0.0.1:8774", strategy)
    cloud = yaml.safe_load((tmp_path / "clouds.yaml").read_text())["clouds"]["jetbridge"]
    assert cloud["auth_type"] == strategy
    assert cloud["compute_endpoint_override"] == "http://127.0.0.1:8774/compute/v2.1"
    assert "password" not in (tmp_path / "clouds.yaml").read_text()
    assert (tmp_path / "clouds.yaml").stat().st_mode & 0o077 == 0


def test_a_task_runs_again_and_again_even_when_it_fails_and_never_twice_at_once() -> None:
    ran = threading.Semaphore(0)
    running = threading.Lock()

    def work() -> None:
        assert running.acquire(blocking=False)
        running.release()
        ran.release()
        raise RuntimeError("this pass failed")

    ticker = Ticker(lambda job: threading.Thread(target=job).start())
    ticker.add("task", 0.01, work, after=0)
    ticker.start()
    assert all(ran.acquire(timeout=10) for _ in range(5))
    ticker.stop()


def test_a_removed_task_runs_no_more_and_a_stopped_ticker_returns() -> None:
    ran = threading.Event()
    ticker = Ticker(lambda job: job())
    ticker.add("kept", 0.01, ran.set)
    ticker.add("removed", 0.0, lambda: pytest.fail("a removed task ran"), after=0)
    ticker.remove("removed")
    ticker.start()
    assert ran.wait(10)
    ticker.stop()


def test_an_address_that_is_taken_says_which_and_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(JetbridgeError, match=rf"127.0.0.1 port {port}.*--port"):
            HttpServer("127.0.0.1", port)


def test_an_address_that_is_taken_before_the_server_listens_ends_the_start_at_once() -> None:
    """Two sockets may be bound to one address: the first to listen has it."""
    server = HttpServer("127.0.0.1", 0)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", server.port))
        other.listen()
        began = time.monotonic()
        with pytest.raises(JetbridgeError, match=rf"port {server.port}: Address already in use.*--port"):
            server.start(FastAPI())
        assert time.monotonic() - began < START_SECONDS / 3
    server.stop()


@pytest.mark.parametrize(("listen", "host"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_the_base_url_is_one_that_this_machine_reaches(listen: str, host: str) -> None:
    server = HttpServer(listen, 0)
    assert server.base_url == f"http://{host}:{server.port}"
    server.stop()


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("http://127.0.0.1:8774/accelerator/v2", True),
        (f"http://{socket.gethostname()}:8774/accelerator/v2", True),
        ("http://localhost:8774", True),
        ("http://127.0.0.1:6666/v2", False),
        ("http://127.0.0.1/accelerator/v2", False),
        ("https://127.0.0.1:8774/accelerator/v2", False),
        ("http://192.0.2.1:8774/accelerator/v2", False),
        ("http://nobody.invalid:8774/accelerator/v2", False),
        ("http://[::1:8774", False),
        ("http://127.0.0.1:port/", False),
    ],
)
def test_a_process_finds_itself_by_any_name_of_its_machine(url: str, ours: bool) -> None:
    assert leads_to(url, 8774) is ours
