"""What only messages between processes can do: arrive twice, late, at somebody else, or after RabbitMQ was away."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetbridge.errors import InvalidConfiguration, MessageTimeout, ServiceUnavailable, UnknownDestination
from jetbridge.model.context import RequestContext
from jetbridge.rpc.bus import Payload
from jetbridge.rpc.oslo import OsloBus
from jetbridge.rpc.rabbit import Receiver, open_transport
from jetbridge.rpc.tls import Tls
from tests.servers.certificates import Certificates
from tests.servers.rabbitmq import RabbitNode, free_port

CONTEXT = RequestContext("u", "p", frozenset({"admin"}), "req-1")
WAIT = 60
QUEUES = ("conductor", "scheduler", *(f"compute.h{number}" for number in range(200)))


class Process:
    """A bus as one process has it."""

    def __init__(self, url: str, **arguments: Any) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.bus = OsloBus(url, self.pool, **arguments)
        self.arrived: queue.Queue[Payload] = queue.Queue()

    def note(self, context: RequestContext, payload: Payload) -> Payload:
        self.arrived.put(payload)
        return {}

    def cast(self, method: str, topic: str = "conductor", server: str | None = None, **payload: Any) -> None:
        self.bus.cast(CONTEXT, topic, method, payload, source="test", server=server)

    def call(self, method: str, topic: str = "conductor", timeout: float = WAIT, **payload: Any) -> Payload:
        return self.bus.call(CONTEXT, topic, method, payload, source="test", timeout=timeout)

    def close(self) -> None:
        self.bus.stop()
        self.pool.shutdown()


@pytest.fixture
def processes(rabbit: RabbitNode) -> Iterator[Any]:
    """``processes()``: one more process."""
    with ExitStack() as stack:
        stack.callback(rabbit.forget, *QUEUES)

        def start(**arguments: Any) -> Process:
            process = Process(rabbit.url, **arguments)
            process.bus.start()
            stack.callback(process.close)
            return process

        yield start


@contextmanager
def caught(receiver: Receiver) -> Iterator[None]:
    """Meanwhile its thread, which receives messages, is caught in something."""
    go = threading.Event()
    receiver._orders.put(lambda: go.wait(WAIT) and None)
    try:
        yield
    finally:
        go.set()


def test_what_a_process_had_not_begun_when_it_stopped_goes_to_another(processes: Any) -> None:
    first, second, sender = processes(), processes(), processes()
    started, go = threading.Semaphore(0), threading.Event()

    def build(context: RequestContext, payload: Payload) -> None:
        started.release()
        assert go.wait(WAIT)
        first.note(context, payload)

    first.bus.serve("conductor", {"build": build})
    for number in range(6):
        sender.cast("build", number=number)
    for _ in range(2):  # its workers
        assert started.acquire(timeout=WAIT)
    stopper = threading.Thread(target=first.bus.stop)
    stopper.start()
    second.bus.serve("conductor", {"build": second.note})
    go.set()
    stopper.join(WAIT)
    done = [first.arrived.get(timeout=WAIT)["number"] for _ in range(2)]
    done += [second.arrived.get(timeout=WAIT)["number"] for _ in range(4)]
    assert sorted(done) == list(range(6))
    assert first.arrived.empty()
    assert second.arrived.empty()


def test_messages_to_a_host_wait_for_its_agent_to_return(processes: Any, rabbit: RabbitNode) -> None:
    agent, sender = processes(), processes()
    agent.bus.serve("compute", {"build": agent.note}, server="h1")
    agent.close()
    sender.cast("build", topic="compute", server="h1", number=1)
    assert rabbit.waiting("compute.h1") == 1
    successor = processes()
    successor.bus.serve("compute", {"build": successor.note}, server="h1")
    assert successor.arrived.get(timeout=WAIT) == {"number": 1}


def test_a_host_that_is_known_to_be_down_gets_no_messages(processes: Any, rabbit: RabbitNode) -> None:
    agent, sender = processes(), processes(served=lambda topic, server: server != "h1")
    agent.bus.serve("compute", {"build": agent.note}, server="h1")
    with pytest.raises(UnknownDestination, match="Nobody serves compute:h1"):
        sender.cast("build", topic="compute", server="h1")


def test_a_call_that_comes_after_its_deadline_is_dropped_and_said(
    processes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = processes(clock=lambda: 1060.5), processes(clock=lambda: 1000.0)
    server.bus.serve("scheduler", {"select": server.note})
    with pytest.raises(MessageTimeout):
        client.call("select", topic="scheduler", timeout=2)
    assert server.arrived.empty()
    line = next(record for record in caplog.records if "after its deadline" in record.message)
    assert line.levelno == logging.WARNING
    assert "Dropped select to scheduler: it came 58.5 s after its deadline" in line.message
    assert line.request_id == "req-1"  # type: ignore[attr-defined]


def test_the_deadline_of_a_call_is_that_of_the_calls_it_makes(processes: Any) -> None:
    front, middle, back = processes(), processes(), processes()
    seen: list[str] = []
    go = threading.Event()

    def ask_on(context: RequestContext, payload: Payload) -> Payload:
        try:
            return middle.call("slow", topic="scheduler", timeout=WAIT)
        except MessageTimeout as error:
            seen.append(error.message)
            raise

    def slow(context: RequestContext, payload: Payload) -> None:
        go.wait(WAIT)

    middle.bus.serve("conductor", {"ask": ask_on})
    back.bus.serve("scheduler", {"slow": slow})
    with pytest.raises(MessageTimeout, match="No answer from"):
        front.call("ask", timeout=5)
    go.set()
    middle.close()
    assert len(seen) == 1
    assert re.search(r"within [0-4]\.\d", seen[0])


def test_a_rabbitmq_that_restarts_loses_nothing_and_nothing_runs_twice(
    processes: Any, rabbit: RabbitNode, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = processes(), processes()
    started, go = threading.Semaphore(0), threading.Event()

    def build(context: RequestContext, payload: Payload) -> None:
        started.release()
        assert go.wait(WAIT)
        server.note(context, payload)

    server.bus.serve("conductor", {"build": build, "note": server.note})
    for number in range(5):
        client.cast("build", number=number)
    for _ in range(2):
        assert started.acquire(timeout=WAIT)
    rabbit.restart()
    client.cast("note", number=5)  # waits for RabbitMQ to be there
    go.set()
    arrived = [server.arrived.get(timeout=WAIT)["number"] for _ in range(6)]
    assert sorted(arrived) == list(range(6))
    assert client.call("note", number=6) == {}
    assert server.arrived.get(timeout=WAIT) == {"number": 6}
    assert server.arrived.empty()
    server.close()
    assert rabbit.waiting("conductor") == 0


def test_two_hundred_hosts_need_one_connection_and_no_thread_each(processes: Any) -> None:
    agents, sender = processes(), processes()
    before = threading.active_count()
    with ThreadPoolExecutor(20) as pool:
        list(
            pool.map(lambda number: agents.bus.serve("compute", {"note": agents.note}, server=f"h{number}"), range(200))
        )
    assert threading.active_count() <= before
    for number in range(0, 200, 20):
        sender.cast("note", topic="compute", server=f"h{number}", number=number)
    assert sorted(agents.arrived.get(timeout=WAIT)["number"] for _ in range(10)) == list(range(0, 200, 20))


def test_an_address_where_nothing_answers_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """At once: what never connected has nothing to stop."""
    with ThreadPoolExecutor(1) as pool:
        bus = OsloBus(f"rabbit://guest:guest@127.0.0.1:{free_port()}/", pool)
        with pytest.raises(ServiceUnavailable, match=r"RabbitMQ does not answer: .*refused.*transport_url"):
            bus.start()
        bus.stop()
    assert "Stopping without RabbitMQ" not in caplog.text


def test_a_wrong_password_is_said(rabbit: RabbitNode) -> None:
    with ThreadPoolExecutor(1) as pool:
        bus = OsloBus(rabbit.url.replace("guest:guest", "guest:wrong"), pool)
        with pytest.raises(ServiceUnavailable, match="ACCESS_REFUSED") as caught:
            bus.start()
        assert "wrong" not in caught.value.message.replace("wrong?", "")


@pytest.mark.filterwarnings("ignore:ssl.PROTOCOL_TLS:DeprecationWarning")
@pytest.mark.parametrize("version", [None, "TLSv1_2", "SSLv23"])
def test_messages_go_over_tls(rabbit: RabbitNode, version: str | None) -> None:
    mine = rabbit.certificates
    tls = Tls(mine.ca_file, mine.cert_file, mine.key_file, version)
    processes = [Process(rabbit.tls_url, tls=tls) for _ in range(2)]
    try:
        for process in processes:
            process.bus.start()
        sender, receiver = processes
        receiver.bus.serve("conductor", {"note": receiver.note})
        sender.cast("note", number=1)
        assert receiver.arrived.get(timeout=WAIT) == {"number": 1}
        assert sender.call("note", number=2) == {}
        assert receiver.arrived.get(timeout=WAIT) == {"number": 2}
    finally:
        for process in processes:
            process.close()
        rabbit.forget(*QUEUES[:1])


def test_a_stop_right_after_a_start_ends(rabbit: RabbitNode) -> None:
    """Its queue was given up before anything had been received from it: the thread of the messages looked for it for ever, and the stop
    waited for that."""
    with ThreadPoolExecutor(1) as pool:
        bus = OsloBus(rabbit.url, pool)
        bus.start()
        serving = threading.Thread(target=bus.serve, args=("conductor", {}), daemon=True)
        stopping = threading.Thread(target=bus.stop, daemon=True)
        with caught(bus._receiver):
            for number, thread in enumerate((serving, stopping), start=1):
                thread.start()
                end = time.monotonic() + WAIT
                while bus._receiver._orders.qsize() < number and time.monotonic() < end:
                    time.sleep(0.01)
        serving.join(WAIT)
        stopping.join(WAIT)
        assert not stopping.is_alive()
    rabbit.forget(*QUEUES[:1])


def test_a_stop_ends_though_the_thread_that_receives_is_caught_in_something(
    rabbit: RabbitNode, caplog: pytest.LogCaptureFixture
) -> None:
    transport, lines = open_transport(rabbit.url)
    receiver = Receiver(transport, lines, lambda delivery: None, stop_seconds=0.3)
    receiver.start()
    with caught(receiver):
        begun = time.monotonic()
        with pytest.raises(ServiceUnavailable, match=r"did not answer within 0\.3 s"):
            receiver.pause()
        receiver.stop()
        assert time.monotonic() - begun < WAIT / 2
    assert "The thread that receives messages does not end" in caplog.text


def test_a_rabbitmq_that_somebody_else_signed_is_refused(rabbit: RabbitNode, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        bus = OsloBus(rabbit.tls_url, pool, tls=Tls(Certificates(tmp_path).ca_file))
        with pytest.raises(ServiceUnavailable, match=r"certificate verify failed"):
            bus.start()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"ca_file": "/none.pem"}, r"ssl_ca_file = /none.pem can't be used: .*No such file"),
        ({"cert_file": "/none.pem"}, r"ssl_cert_file = /none.pem .* can't be used: .*No such file"),
        ({"key_file": "/none.pem"}, r"ssl_key_file is set without .*ssl_cert_file"),
    ],
)
def test_files_for_tls_that_cannot_be_used_are_named(files: dict[str, str], told: str) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(InvalidConfiguration, match=told):
        OsloBus("rabbit://h/", pool, tls=Tls(**files))


@pytest.mark.parametrize("url", ["", "127.0.0.1", "kafka://h", "rabbit://h:port/"])
def test_what_is_no_transport_url_is_refused_with_what_to_write(url: str) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(InvalidConfiguration, match=r"\[DEFAULT\]transport_url .* write rabbit://"),
    ):
        OsloBus(url, pool)
