"""sysfs of a simulated host, worked out from its hardware when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jetbridge.errors import HypervisorError
from jetbridge.model.fleet import VgpuTypeSpec
from jetbridge.pci.device import DeviceType
from jetbridge.virt.nodedev import MdevType, NodeDevice, parse_node_device
from jetbridge.virt.simulated.hardware import Part

_DEVICES = "/sys/bus/pci/devices"
_MAX_LINKS = 16


class SysfsSource(Protocol):
    """What the files are made of."""

    @property
    def host(self) -> str: ...

    def parts(self) -> Mapping[str, Part]: ...

    def driver_of(self, address: str) -> str | None: ...

    def documents(self) -> Sequence[str]: ...

    def vendor_type(self, address: str) -> str: ...

    def creatable_types(self, address: str) -> Sequence[VgpuTypeSpec]: ...

    def set_vendor_type(self, address: str, path: str, number: str) -> None: ...

    def written(self, path: str) -> str | None: ...

    def write(self, path: str, text: str) -> None:
        """Keeps the new text of an attribute, after recording it."""
        ...

    def bind(self, address: str, driver: str | None) -> None:
        """Changes a function's driver. Raises HypervisorError where the kernel would refuse."""
        ...


@dataclass(frozen=True)
class _Link:
    target: str  # absolute
    text: str


@dataclass(frozen=True)
class _Folder:
    names: Callable[[], Sequence[str]]
    entry: Callable[[str], _Node | None]


_Node = str | _Link | _Folder


def _folder(entries: Mapping[str, _Node]) -> _Folder:
    return _Folder(lambda: list(entries), entries.get)


class SimulatedHostFiles:
    """``HostFiles`` over a simulated host: below /sys/bus/pci, /sys/class/net, /sys/class/mdev_bus, /sys/devices/virtual and
    /sys/kernel/iommu_groups."""

    def __init__(self, source: SysfsSource) -> None:
        self._source = source
        self._root = _folder(
            {
                "sys": _folder(
                    {
                        "bus": _folder(
                            {
                                "pci": _folder(
                                    {
                                        "devices": _Folder(lambda: list(source.parts()), self._device_entry),
                                        "drivers": _Folder(self._drivers, self._driver),
                                    }
                                )
                            }
                        ),
                        "class": _folder(
                            {
                                "net": _Folder(lambda: list(self._interfaces()), self._interface),
                                "mdev_bus": _Folder(lambda: list(self._carriers()), self._carrier),
                            }
                        ),
                        "devices": _folder({"virtual": _Folder(self._virtual_drivers, self._virtual_driver)}),
                        "kernel": _folder({"iommu_groups": _Folder(lambda: list(self._groups()), self._group)}),
                    }
                )
            }
        )

    def read_text(self, path: str) -> str | None:
        node = self._find(path)
        if not isinstance(node, str):
            return None
        return self._source.written(self._real(path)) or node

    def list_dir(self, path: str) -> Sequence[str]:
        node = self._find(path)
        return tuple(node.names()) if isinstance(node, _Folder) else ()

    def read_link(self, path: str) -> str | None:
        node = self._find(path, follow_last=False)
        return node.text if isinstance(node, _Link) else None

    def write_text(self, path: str, text: str) -> None:
        name = path.rsplit("/", 1)[-1]
        if name in {"bind", "unbind"}:
            self._bind(path, name, text.strip())
        elif name == "current_vgpu_type" and isinstance(self._find(path), str):
            real = self._real(path)
            self._source.set_vendor_type(real.split("/")[-3], real, text.strip())
        elif name == "driver_override" and isinstance(self._find(path), str):
            self._source.write(self._real(path), text if text.endswith("\n") else text + "\n")
        else:
            raise self._error(
                path, "Permission denied" if isinstance(self._find(path), str) else "No such file or directory"
            )

    def _bind(self, path: str, verb: str, address: str) -> None:
        found = self._real(path).split("/")  # ... drivers NAME bind
        if address not in self._source.parts() or found[:-2] != ["", "sys", "bus", "pci", "drivers"]:
            raise self._error(path, "No such device")
        driver, present = found[-2], self._source.driver_of(address)
        if (present is not None) if verb == "bind" else (present != driver):
            raise self._error(path, "Device or resource busy" if verb == "bind" else "No such device")
        self._source.bind(address, driver if verb == "bind" else None)

    def _error(self, path: str, reason: str) -> HypervisorError:
        return HypervisorError(operation=f"write {path}", host=self._source.host, reason=reason)

    def _real(self, path: str) -> str:
        """The path without links in its folders."""
        return self._resolve(path, follow_last=True)[0]

    def _find(self, path: str, *, follow_last: bool = True) -> _Node | None:
        return self._resolve(path, follow_last=follow_last)[1]

    def _resolve(self, path: str, *, follow_last: bool) -> tuple[str, _Node | None]:
        rest = [part for part in path.split("/") if part]
        node: _Node | None = self._root
        done: list[str] = []
        links = 0
        while rest and node is not None:
            part = rest.pop(0)
            node = node.entry(part) if isinstance(node, _Folder) else None
            done.append(part)
            if isinstance(node, _Link) and (rest or follow_last):
                links += 1
                if links > _MAX_LINKS:
                    return path, None
                rest = [*(p for p in node.target.split("/") if p), *rest]
                node, done = self._root, []
        return "/" + "/".join([*done, *rest]), node

    # --- what stands where ---

    def _device_entry(self, address: str) -> _Node | None:
        part = self._source.parts().get(address)
        return _folder(self._attributes(address, part)) if part else None

    def _attributes(self, address: str, part: Part) -> dict[str, _Node]:
        pci = part.pci
        driver = self._source.driver_of(address)
        entries: dict[str, _Node] = {
            "vendor": f"0x{pci.vendor_id}\n",
            "device": f"0x{pci.product_id}\n",
            "class": f"{pci.class_code or '0xff0000'}\n",
            "numa_node": f"{-1 if pci.numa_node is None else pci.numa_node}\n",
            "driver_override": "(null)\n",
            "resource": _resource(part),
        }
        if not pci.is_bridge:
            entries["reset_method"] = "flr bus\n"
        if driver:
            entries["driver"] = _Link(f"/sys/bus/pci/drivers/{driver}", f"../../../../bus/pci/drivers/{driver}")
        if pci.iommu_group is not None:
            group = f"kernel/iommu_groups/{pci.iommu_group}"
            entries["iommu_group"] = _Link(f"/sys/{group}", f"../../../../{group}")
        if pci.virt_functions is not None:
            entries["sriov_totalvfs"] = f"{pci.max_vfs or len(pci.virt_functions)}\n"
            entries["sriov_numvfs"] = f"{len(pci.virt_functions)}\n"
            entries["sriov_vf_device"] = f"{self._vf_product(part)}\n"
            for number, vf in enumerate(pci.virt_functions):
                entries[f"virtfn{number}"] = _Link(f"{_DEVICES}/{vf}", f"../{vf}")
        if pci.parent_addr:
            entries["physfn"] = _Link(f"{_DEVICES}/{pci.parent_addr}", f"../{pci.parent_addr}")
        if part.interface and driver == part.node.driver:
            entries["net"] = _folder({part.interface: _folder({"address": f"{part.mac}\n"})})
        if part.vgpu_types and pci.dev_type is DeviceType.VF:
            kinds = "".join(f"{kind.number} : {kind.name}\n" for kind in self._source.creatable_types(address))
            current = f"{self._source.vendor_type(address)}\n"
            entries["nvidia"] = _folder(
                {"creatable_vgpu_types": f"ID : vGPU Name\n{kinds}", "current_vgpu_type": current}
            )
        if part.fabric:
            entries["fabric"] = f"{part.fabric}\n"
        return entries

    def _vf_product(self, part: Part) -> str:
        if part.vf_product_id:
            return part.vf_product_id
        first = self._source.parts().get(next(iter(part.pci.virt_functions or ()), ""))
        return first.pci.product_id if first else part.pci.product_id

    def _interfaces(self) -> dict[str, str]:
        return {
            part.interface: address
            for address, part in self._source.parts().items()
            if part.interface and self._source.driver_of(address) == part.node.driver
        }

    def _interface(self, name: str) -> _Node | None:
        address = self._interfaces().get(name)
        if address is None:
            return None
        link = _Link(f"{_DEVICES}/{address}", f"../../../{address}")
        return _folder({"address": f"{self._source.parts()[address].mac}\n", "device": link})

    def _carriers(self) -> dict[str, NodeDevice]:
        """Parents of mediated devices, by the name of their folder."""
        nodes = map(parse_node_device, self._source.documents())
        return {(node.path or node.name).rpartition("/")[2]: node for node in nodes if node.mdev_types}

    def _carrier(self, name: str) -> _Node | None:
        node = self._carriers().get(name)
        if node is None:
            return None
        part = self._source.parts().get(name)
        limits = {kind.id: kind.max_instance for kind in part.mdev_types} if part else {}
        kinds = {kind.id: _folder(_type_files(kind, limits.get(kind.id))) for kind in node.mdev_types}
        return _folder({"mdev_supported_types": _folder(kinds)})

    def _virtual_drivers(self) -> list[str]:
        paths = [node.path or "" for node in self._carriers().values()]
        return [path.split("/")[4] for path in paths if path.startswith("/sys/devices/virtual/")]

    def _virtual_driver(self, name: str) -> _Node | None:
        if name not in self._virtual_drivers():
            return None
        above = f"/sys/devices/virtual/{name}/"
        paths = [node.path or "" for node in self._carriers().values()]
        return _folder({path.removeprefix(above): _folder({}) for path in paths if path.startswith(above)})

    def _groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for address, part in self._source.parts().items():
            if part.pci.iommu_group is not None:
                found.setdefault(str(part.pci.iommu_group), []).append(address)
        return found

    def _group(self, number: str) -> _Node | None:
        members = self._groups().get(number)
        if members is None:
            return None
        links: dict[str, _Node] = {a: _Link(f"{_DEVICES}/{a}", f"../../../../bus/pci/devices/{a}") for a in members}
        return _folder({"devices": _folder(links)})

    def _drivers(self) -> list[str]:
        return sorted({"vfio-pci"} | {driver for a in self._source.parts() if (driver := self._source.driver_of(a))})

    def _driver(self, name: str) -> _Node | None:
        if name not in self._drivers():
            return None
        bound = [address for address in self._source.parts() if self._source.driver_of(address) == name]
        entries: dict[str, _Node] = {a: _Link(f"{_DEVICES}/{a}", f"../../../../bus/pci/devices/{a}") for a in bound}
        return _folder({**entries, "bind": "", "unbind": ""})


def _type_files(kind: MdevType, limit: int | None) -> dict[str, _Node]:
    description = f"max_instance={limit}" if limit is not None else "simulated"
    return {
        "name": f"{kind.name or kind.id}\n",
        "description": f"{description}\n",
        "device_api": f"{kind.device_api or 'vfio-pci'}\n",
        "available_instances": f"{kind.available}\n",
    }


def _resource(part: Part) -> str:
    """Start, end and flags of the regions: region 0 small, region 1 the large one. Only their sizes mean something."""
    lines = ["0x0000000000000000 0x0000000000ffffff 0x0000000000040200"]
    if part.bar_mb:
        lines.append(f"{0x38000000000:#018x} {0x38000000000 + part.bar_mb * 2**20 - 1:#018x} 0x000000000014220c")
    lines += ["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * (13 - len(lines))
    return "\n".join(lines) + "\n"
