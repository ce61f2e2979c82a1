from __future__ import annotations

import uuid
from typing import Any

from jetbridge.db import server_arqs
from jetbridge.model.accelerator import ServerArq
from tests.unit.api.clouds import Cloud, message

BOUND = "accelerator-request-bound"


def tell(cloud: Cloud, *events: dict[str, Any], version: str = "2.82") -> Any:
    return cloud.ask("POST", "/os-server-external-events", {"events": list(events)}, version=version)


def waiting(cloud: Cloud, server: str) -> str:
    """A request of the server, bound to gpu001 as far as the conductor knows."""
    arq = str(uuid.uuid4())
    row = ServerArq(server, 1, "infer", "p", arq_uuid=arq, hostname="gpu001")
    cloud.database.write(lambda conn: server_arqs.insert(conn, [row]))
    return arq


def noted(cloud: Cloud, server: str) -> list[str | None]:
    with cloud.database.read() as conn:
        return [row.event for row in server_arqs.of_server(conn, server)]


def test_an_event_is_kept_with_its_request_and_wakes_its_host(cloud: Cloud) -> None:
    cloud.flavor()
    server = cloud.booted()
    arq = waiting(cloud, server)
    event = {"name": BOUND, "server_uuid": server, "tag": arq, "status": "completed"}
    for _ in range(2):  # it may come twice
        answer = tell(cloud, event)
        assert (answer.status_code, answer.json()) == (200, {"events": [{**event, "code": 200}]})
    assert noted(cloud, server) == ["completed"]
    woken = cloud.inbox.wait("external_event", 2)
    assert woken[0] == {"server_uuid": server, "name": BOUND, "tag": arq, "status": "completed"}


def test_a_binding_that_goes_on_has_not_ended(cloud: Cloud) -> None:
    cloud.flavor()
    server = cloud.booted()
    arq = waiting(cloud, server)
    event = {"name": BOUND, "server_uuid": server, "tag": arq, "status": "in-progress"}
    answer = tell(cloud, event)
    assert (answer.status_code, answer.json()) == (200, {"events": [{**event, "code": 200}]})
    assert noted(cloud, server) == [None]
    assert tell(cloud, {**event, "status": "failed"}).status_code == 200
    assert noted(cloud, server) == ["failed"]


def test_each_event_has_a_code_of_its_own(cloud: Cloud) -> None:
    cloud.flavor()
    server = cloud.booted()
    other = str(uuid.uuid4())
    events = [
        {"name": BOUND, "server_uuid": server, "tag": "foreign"},
        {"name": BOUND, "server_uuid": other, "tag": "a"},
        {"name": "network-changed", "server_uuid": server},
    ]
    answer = tell(cloud, *events)
    assert answer.status_code == 207
    assert [event["code"] for event in answer.json()["events"]] == [400, 404, 200]
    assert other not in cloud.ask("GET", "/servers").text
    assert message(tell(cloud, events[1])).startswith("No instances found")


def test_wrong_events_are_refused(cloud: Cloud) -> None:
    server = str(uuid.uuid4())
    for body, version, said in (
        ({"name": BOUND, "server_uuid": server, "tag": "a"}, "2.81", "2.82"),
        ({"name": "sunrise", "server_uuid": server}, "2.82", "name"),
        ({"name": BOUND, "server_uuid": "x"}, "2.82", "server_uuid"),
        ({"name": BOUND, "server_uuid": server, "status": "maybe"}, "2.82", "status"),
    ):
        answer = tell(cloud, body, version=version)
        assert answer.status_code == 400
        assert said in message(answer)
