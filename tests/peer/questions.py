"""Questions drawn from a seed: device_spec lines, devices, aliases, requests, host and guest cells, as plain data."""

from __future__ import annotations

import json
import random
from typing import Any

IDS = [("10de", "1eb8"), ("10de", "1eb9"), ("8086", "1eb8"), ("15b3", "101e")]
POLICIES = [None, "legacy", "preferred", "required", "socket"]
Data = dict[str, Any]


class Draw:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    # --- matching ---

    def line(self) -> str:
        line: Data = {}
        if self.chance(70):
            line["vendor_id"] = self.one("10de", "10DE", "0x10de", "8086", "*", " 10de")
        if self.chance(60):
            line["product_id"] = self.one("1eb8", "1EB9", "101e", "*")
        if self.chance(60):
            line["address"] = self.one(
                "*:3b:00.*", "3b:00.1", "0000:3b:*.*", "*:*:*.1", ":3b:.", "*:5e:*.*", "0000:*:00.0", ".1", "3b:*",
                {"domain": ".*", "bus": "3b|5e", "slot": "00", "function": "[0-3]"},
                {"bus": "3.*", "function": "1"},
                {"domain": "0000", "bus": "^5e$", "slot": ".*", "function": ".*"},
            )  # fmt: skip
        for tag in ("physical_network", "trusted", "managed", "live_migratable", "private"):
            if self.chance(20):
                line[tag] = (
                    self.one("true", "false", "yes") if tag in ("managed", "live_migratable") else self.one("a", "true")
                )
        return json.dumps(line)

    def lines(self) -> list[str]:
        return [self.line() for _ in range(self.random.randrange(1, 4))]

    def device(self) -> Data:
        vendor, product = self.one(*IDS)
        function = self.random.randrange(0, 6)
        address = f"{self.one('0000', '0001')}:{self.one('3b', '5e', 'af')}:{self.one('00', '01')}.{function}"
        return {
            "address": address,
            "vendor_id": vendor,
            "product_id": product,
            "dev_type": "type-PCI",
            "numa_node": self.one(None, 0, 1),
            "parent_addr": None,
        }

    # --- fitting ---

    def host(self) -> list[Data]:
        """Devices of one host: plain ones, and cards with virtual functions; some are in use."""
        rows: list[Data] = []
        for bus in range(self.random.randrange(1, 6)):
            vendor, product = self.one(*IDS[:3])
            node = self.one(None, 0, 1, 2)
            address = f"0000:{bus + 0x10:02x}:00.0"
            facts = {"vendor_id": vendor, "product_id": product, "numa_node": node}
            if self.chance(60):
                rows.append(
                    {**facts, "address": address, "dev_type": "type-PCI", "parent_addr": None, "free": self.chance(80)}
                )
                continue
            used = self.chance(30)
            if self.chance(60):
                rows.append({**facts, "address": address, "dev_type": "type-PF", "parent_addr": None, "free": not used})
            for at in range(1, self.random.randrange(2, 5)):
                vf = {**facts, "product_id": self.one(product, "26ba"), "address": f"0000:{bus + 0x10:02x}:00.{at}"}
                rows.append(
                    {
                        **vf,
                        "dev_type": self.one("type-VF", "type-VF", "vdpa"),
                        "parent_addr": address,
                        "free": not (used and at == 1),
                    }
                )
        return rows

    def host_lines(self) -> list[str]:
        """The last line takes everything, so that all devices are pooled."""
        tagged = {"address": self.one("*:11:*.*", "*:12:*.*"), self.one("private", "physical_network"): "a"}
        live = {"address": "*:10:*.*", "live_migratable": self.one("true", "false")}
        return [json.dumps(line) for line in (tagged, live) if self.chance(40)] + ["{}"]

    def request(self, number: int) -> Data:
        return {
            "request_id": f"r{number}",
            "alias_name": f"alias{number}",
            "requester_id": None,
            "count": self.one(1, 1, 1, 2, 3),
            "spec": [self.properties() for _ in range(self.one(1, 1, 2))],
            "numa_policy": self.one(*POLICIES),
        }

    def properties(self) -> Data:
        vendor, product = self.one(*IDS[:3])
        wanted = {"vendor_id": self.one(vendor, vendor.upper()), "product_id": product}
        if self.chance(10):
            del wanted["product_id"]
        if self.chance(40):
            wanted["dev_type"] = self.one("type-PCI", "type-VF", "type-PF", "vdpa")
        if self.chance(15):
            wanted["live_migratable"] = self.one("true", "false")
        if self.chance(5):
            wanted["physical_network"] = "a"
        return wanted

    def requests(self) -> list[Data]:
        return [self.request(number) for number in range(self.one(1, 1, 2, 3))]

    # --- cells ---

    def host_cells(self, most: int = 5) -> list[Data]:
        """Alike in hardware, as hosts are; how much of each is used differs."""
        threads, cores = self.one(1, 2), self.one(2, 4)
        count, split = self.random.randrange(1, most), self.chance(50)
        cells = []
        for number in range(count):
            first = number * cores * threads
            siblings = [list(range(first + core * threads, first + (core + 1) * threads)) for core in range(cores)]
            cpus = [cpu for group in siblings for cpu in group]
            pinnable = cpus[len(cpus) // 2 :] if split else cpus
            shared = cpus[: len(cpus) // 2] if split else cpus
            memory = 4096
            cells.append(
                {
                    "id": number,
                    "cpus": shared,
                    "pinnable": pinnable,
                    "memory_mb": memory,
                    "siblings": siblings,
                    "socket": number // 2,
                    "cpu_usage": self.one(0, 0, 2, 8),
                    "memory_usage_mb": self.one(0, 0, 1024, 3072),
                    "pinned": self.random.sample(pinnable, self.random.randrange(0, len(pinnable)))
                    if self.chance(40)
                    else [],
                    "pages": [[4, memory * 256 // 2, 0], [2048, memory // 4, self.one(0, 0, memory // 8)]],
                }
            )
        return cells

    def guest(self, most: int = 4) -> Data:
        policy = self.one(None, None, "shared", "dedicated", "dedicated")
        page = self.one(None, None, None, "small", "large", "any", "2048")
        alike = self.chance(70)
        number_of_cpus, memory = self.one(1, 2, 2, 3), self.one(512, 1024, 2048, 3000)
        cells, first = [], 0
        for number in range(self.random.randrange(1, most)):
            if not alike:
                number_of_cpus, memory = self.one(1, 2, 2, 3), self.one(512, 1024, 2048, 3000)
            cpus = list(range(first, first + number_of_cpus))
            first += len(cpus)
            pinned = policy == "dedicated"
            cells.append(
                {
                    "id": number,
                    "cpus": [] if pinned else cpus,
                    "pinned_cpus": cpus if pinned else [],
                    "memory_mb": memory,
                    "page_request": page,
                }
            )
        return {
            "cells": cells,
            "cpu_policy": policy,
            "thread_policy": self.one(None, None, "prefer", "require", "isolate") if policy == "dedicated" else None,
            "emulator_isolate": policy == "dedicated" and self.chance(15),
        }
