"""VFs of the lab's NVMe controller, made as its driver's users make them."""

from __future__ import annotations

from lab.hardware import NVME, NVME_VFS
from lab.machine import Machine

_FOLDER = f"/sys/bus/pci/devices/{NVME.address}"


def make_vfs(machine: Machine) -> None:
    """Two VFs, online and on no driver.

    A secondary controller stays offline until it has queues and interrupts from the flexible pool, of which the primary must first
    let go (NVM Express base specification, virtualization enhancements; QEMU, docs/system/devices/nvme.rst).
    """
    lines = [
        "set -e",
        "manage() { nvme virt-mgmt /dev/nvme0 -c $1 -r $2 -a $3 -n $4; }",
        "manage 0 1 1 0; manage 0 0 1 0",
        f"echo 1 >{_FOLDER}/reset",
        "tries=0; until [ $(cat /sys/class/nvme/nvme0/state) = live ]; do sleep 0.2; tries=$((tries + 1)); [ $tries -lt 150 ]; done",
        f"echo 0 >{_FOLDER}/sriov_drivers_autoprobe",
        f"echo {len(NVME_VFS)} >{_FOLDER}/sriov_numvfs",
    ]
    for controller, address in enumerate(NVME_VFS, start=1):
        lines += [
            f"manage {controller} 1 8 2; manage {controller} 0 8 2",
            f"echo 1 >/sys/bus/pci/devices/{address}/reset",
            f"nvme virt-mgmt /dev/nvme0 -c {controller} -a 9 -n 0",
        ]
    machine.run("\n".join([*lines, "udevadm settle"]))


def remove_vfs(machine: Machine) -> None:
    machine.run(f"echo 0 >{_FOLDER}/sriov_numvfs; echo 1 >{_FOLDER}/sriov_drivers_autoprobe; udevadm settle")
