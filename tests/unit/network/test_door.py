"""Networks as clients ask for them."""

from __future__ import annotations

from pathlib import Path

from jetbridge.api import network
from jetbridge.network.embedded import network_id
from tests.unit.api.doors import open_door
from tests.unit.network.test_embedded import report


def test_networks_are_found_by_the_filters_that_clients_use(tmp_path: Path) -> None:
    with open_door(tmp_path, [network.router]) as door:
        report(door.services.database, "h1", ("default", "network"), ("br0", "bridge"))

        def names(query: str = "") -> list[str]:
            answer = door.get(f"/network/v2.0/networks{query}")
            assert answer.status_code == 200
            return [found["name"] for found in answer.json()["networks"]]

        assert names() == ["br0", "default"]
        assert names("?name=default") == ["default"]
        assert names("?name=default&name=br0") == ["br0", "default"]
        assert names(f"?id={network_id('br0')}") == ["br0"]
        assert names("?name=nope") == []
        assert names("?router:external=True") == []
        assert names("?router%3Aexternal=false&limit=5") == ["br0", "default"]
        fields = door.get("/network/v2.0/networks?fields=id&fields=name").json()["networks"][0]
        assert set(fields) == {"id", "name"}
        shown = door.get(f"/network/v2.0/networks/{network_id('default')}").json()["network"]
        assert (shown["name"], shown["description"]) == ("default", "libvirt network")
