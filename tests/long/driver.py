"""Does operations to a running cloud, and looks after each one whether what must hold does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx

from jetbridge.config.settings import Settings
from tests.long.operations import BLIND, FLAVORS, HOSTS, Act, Boot, Change, Kill, Operation, Restart, Settle, content
from tests.system.child import MortalCloud
from tests.system.invariants import Journals, check_always, check_at_rest

QUICK = replace(Settings(), service_down_time=10, report_interval=1, update_resources_interval=2)
REST_SECONDS = 90.0


class Driver:
    """``counts``: what was done, and how servers ended."""

    def __init__(self, folder: Path) -> None:
        self.cloud = MortalCloud(folder, QUICK)
        self.hardware = dict.fromkeys(HOSTS, "whole")
        self.counts: Counter[str] = Counter()
        self._journals = Journals(self.cloud)
        self._flavors: dict[str, str] = {}
        self._image = ""

    def start(self) -> None:
        self.cloud.write_fleet(content(self.hardware))
        self.cloud.start()
        self._image = self.cloud.image()
        for name, term in FLAVORS.items():
            self._flavors[name] = self.cloud.flavor(name, {"pci_passthrough:alias": term} if term else {})

    def close(self) -> None:
        if self.cloud.process is not None:
            self.cloud.kill()

    def do(self, operation: Operation) -> None:
        """Raises AssertionError when something doesn't hold."""
        self.counts[type(operation).__name__.lower()] += 1
        try:
            self._do(operation)
        except httpx.TransportError:
            self._revive()  # an armed one: it raises when the process lives
        self._journals.check()
        check_always(self.cloud)

    def _do(self, operation: Operation) -> None:
        match operation:
            case Boot(name, flavor):
                body = {
                    "name": name,
                    "flavorRef": self._flavors[flavor],
                    "imageRef": self._image,
                    "networks": "none",
                    "config_drive": True,
                }
                answer = self.cloud.client.post("/servers", json={"server": body})
                assert answer.status_code == 202, answer.text
            case Act(name, what):
                self._act(name, what)
            case Change(host, hardware):
                self.hardware[host] = hardware
                self._reload()
            case Kill(None):
                self.cloud.process.kill()
                self._revive()
            case Kill(death):
                assert death is not None
                try:
                    self.cloud.arm(death)
                except (EOFError, OSError):
                    self._revive()  # an earlier one came true
            case Restart():
                try:
                    self.cloud.stop()
                except (AssertionError, EOFError, OSError):
                    if self.cloud.process is None:
                        raise  # it lived, or ended by itself
                    self._revive()  # an armed one came true
                else:
                    self._journals.check()
                    check_always(self.cloud)
                    self.cloud.start()
            case Settle():
                self._settle()

    def _act(self, name: str, what: str) -> None:
        found = self.cloud.client.get("/servers", params={"name": f"^{name}$"}).json()["servers"]
        if not found:
            return  # its boot died before it was accepted
        path = f"/servers/{found[0]['id']}"
        if what == "delete":
            answer = self.cloud.client.delete(path)
        else:
            argument = {"type": "HARD"} if what == "reboot" else None
            answer = self.cloud.client.post(f"{path}/action", json={what: argument})
        # Refused in this state, or gone already: both are answers.
        assert answer.status_code in (202, 204, 404, 409), answer.text

    def _reload(self) -> None:
        self.cloud.write_fleet(content(self.hardware))
        answer = self.cloud.client.post(f"{self.cloud.url}/jetbridge/v1/fleet/reload")
        assert answer.status_code < 300, answer.text

    def _settle(self) -> None:
        if any(hardware in BLIND for hardware in self.hardware.values()):
            self.hardware = {name: "whole" if kind in BLIND else kind for name, kind in self.hardware.items()}
            self._reload()
        self._eventually(lambda: check_at_rest(self.cloud))
        for row in self.cloud.client.get("/servers/detail").json()["servers"]:
            self.counts[row["status"]] += 1

    def _revive(self) -> None:
        """Dead: what holds still does, and after a restart everything has an answer."""
        self.cloud.await_death()
        self.counts["died"] += 1
        self._journals.killed()
        check_always(self.cloud)
        self.cloud.start()
        if not any(hardware in BLIND for hardware in self.hardware.values()):
            self._eventually(lambda: check_at_rest(self.cloud))

    def _eventually(self, check: Callable[[], None]) -> None:
        """It holds soon, or is raised as it failed at last. Invariants hold meanwhile."""
        end = time.monotonic() + REST_SECONDS
        while True:
            try:
                check()
                return
            except AssertionError:
                check_always(self.cloud)
                if time.monotonic() > end:
                    raise
                self.cloud.client.get("/flavors")  # raises when it is dead
                time.sleep(0.05)


def run(folder: Path, todo: list[Operation], replay: str) -> Counter[str]:
    """Do all of them; a failure tells where, after what, and how to have it again."""
    driver = Driver(folder)
    try:
        driver.start()
        for number, operation in enumerate(todo):
            try:
                driver.do(operation)
            except Exception as error:
                before = "\n".join(f"  {index}: {todo[index]}" for index in range(max(0, number - 15), number + 1))
                raise AssertionError(
                    f"operation {number} of {len(todo)}: {error}\nreplay: {replay}\n{before}\n{driver.cloud.log()[-6000:]}"
                ) from error
        return driver.counts
    finally:
        driver.close()
