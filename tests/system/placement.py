"""Placement as operators see it: through osc-placement's commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.system.clients import OpenStack

VERSION = ("--os-placement-api-version", "1.29")


@dataclass(frozen=True)
class Providers:
    openstack: OpenStack

    def tree(self, root: str) -> dict[str, str]:
        """The host's providers: UUIDs by name."""
        listed = self._json("resource", "provider", "list", "--in-tree", self.named(root))
        return {each["name"]: each["uuid"] for each in listed}

    def named(self, name: str) -> str:
        (found,) = self._json("resource", "provider", "list", "--name", name)
        uuid: str = found["uuid"]
        return uuid

    def inventory(self, uuid: str) -> dict[str, tuple[int, int]]:
        """Total and reserved by class."""
        listed = self._json("resource", "provider", "inventory", "list", uuid)
        return {each["resource_class"]: (each["total"], each["reserved"]) for each in listed}

    def traits(self, uuid: str) -> set[str]:
        return {each["name"] for each in self._json("resource", "provider", "trait", "list", uuid)}

    def usage(self, uuid: str) -> dict[str, int]:
        listed = self._json("resource", "provider", "usage", "show", uuid)
        return {each["resource_class"]: each["usage"] for each in listed}

    def allocation(self, consumer: str) -> dict[str, dict[str, int]]:
        """Amounts by class for each provider."""
        listed = self._json("resource", "provider", "allocation", "show", consumer)
        return {each["resource_provider"]: each["resources"] for each in listed}

    def allocation_by_name(self, consumer: str) -> dict[str, dict[str, int]]:
        """As ``allocation``, by the names of the providers."""
        names = {each["uuid"]: each["name"] for each in self._json("resource", "provider", "list")}
        return {names[uuid]: resources for uuid, resources in self.allocation(consumer).items()}

    def candidates(self, resource: str, *more: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json("allocation", "candidate", "list", "--resource", resource, *more)
        return found

    def set_traits(self, uuid: str, *traits: str) -> None:
        """Those that are there stay."""
        wanted = self.traits(uuid) | set(traits)
        for trait in traits:
            if trait.startswith("CUSTOM_"):
                self.ok("trait", "create", trait)
        words = [word for trait in sorted(wanted) for word in ("--trait", trait)]
        self.ok("resource", "provider", "trait", "set", *words, uuid)

    def set_reserved(self, uuid: str, resource_class: str, reserved: int) -> None:
        words = ("--amend", "--resource", f"{resource_class}:reserved={reserved}")
        self.ok("resource", "provider", "inventory", "set", *words, uuid)

    def ok(self, *words: str) -> str:
        return self.openstack.ok(*VERSION, *words)

    def _json(self, *words: str) -> Any:
        return self.openstack.json(*VERSION, *words)
