"""The capabilities documents of a simulated host."""

from __future__ import annotations

import uuid
from functools import lru_cache
from xml.sax.saxutils import escape

from jetbridge.model.fleet import FleetHost, NumaSpec

_GUEST = """
  <guest>
    <os_type>hvm</os_type>
    <arch name='x86_64'>
      <wordsize>64</wordsize>
      <emulator>/usr/bin/qemu-system-x86_64</emulator>
      <machine maxCpus='288'>pc-q35-8.2</machine>
      <machine canonical='pc-q35-8.2' maxCpus='288'>q35</machine>
      <domain type='qemu'/>
      <domain type='kvm'/>
    </arch>
    <features>
      <acpi default='on' toggle='yes'/>
      <apic default='on' toggle='no'/>
      <cpuselection/>
      <deviceboot/>
      <disksnapshot default='on' toggle='no'/>
    </features>
  </guest>
"""

DOMAIN_CAPABILITIES = """<domainCapabilities>
  <path>/usr/bin/qemu-system-x86_64</path>
  <domain>kvm</domain>
  <machine>pc-q35-8.2</machine>
  <arch>x86_64</arch>
  <vcpu max='288'/>
  <iothreads supported='yes'/>
  <os supported='yes'>
    <enum name='firmware'>
      <value>efi</value>
    </enum>
    <loader supported='yes'>
      <value>/usr/share/OVMF/OVMF_CODE_4M.fd</value>
      <enum name='type'>
        <value>rom</value>
        <value>pflash</value>
      </enum>
      <enum name='readonly'>
        <value>yes</value>
        <value>no</value>
      </enum>
      <enum name='secure'>
        <value>no</value>
      </enum>
    </loader>
  </os>
  <devices>
    <hostdev supported='yes'>
      <enum name='mode'>
        <value>subsystem</value>
      </enum>
      <enum name='startupPolicy'>
        <value>default</value>
        <value>mandatory</value>
        <value>requisite</value>
        <value>optional</value>
      </enum>
      <enum name='subsysType'>
        <value>usb</value>
        <value>pci</value>
        <value>scsi</value>
      </enum>
      <enum name='capsType'/>
      <enum name='pciBackend'>
        <value>default</value>
        <value>vfio</value>
      </enum>
    </hostdev>
  </devices>
</domainCapabilities>
"""


def capabilities_document(host: FleetHost) -> str:
    """A host without NUMA cells has one cell that holds its memory and no CPUs, so that nothing can be placed on it."""
    numa = host.numa
    if numa:
        cores = numa.cpus_per_cell * numa.cells // numa.threads_per_core
        topology = _cpu_topology(numa.sockets, max(1, cores // numa.sockets), numa.threads_per_core)
        cells = _cells(numa)
    else:
        topology = _cpu_topology(1, host.vcpus, 1)
        cells = f"      <cells num='1'>\n{_memory_cell(host.memory_mb)}      </cells>\n"
    return f"""<capabilities>

  <host>
    <uuid>{uuid.uuid5(uuid.NAMESPACE_DNS, escape(host.name))}</uuid>
    <cpu>
      <arch>x86_64</arch>
      <model>Icelake-Server</model>
      <vendor>Intel</vendor>
{topology}      <feature name='vmx'/>
      <feature name='avx2'/>
      <feature name='avx512f'/>
      <pages unit='KiB' size='4'/>
      <pages unit='KiB' size='2048'/>
      <pages unit='KiB' size='1048576'/>
    </cpu>
    <power_management/>
    <iommu support='yes'/>
    <topology>
{cells}    </topology>
  </host>
{_GUEST}
</capabilities>
"""


def _cpu_topology(sockets: int, cores: int, threads: int) -> str:
    return f"      <topology sockets='{sockets}' dies='1' cores='{cores}' threads='{threads}'/>\n"


def _memory_cell(memory_mb: int) -> str:
    return f"""        <cell id='0'>
          <memory unit='KiB'>{memory_mb * 1024}</memory>
          <cpus num='0'/>
        </cell>
"""


@lru_cache(maxsize=64)
def _cells(numa: NumaSpec) -> str:
    pages = dict(numa.hugepages)
    small = (numa.memory_mb_per_cell * 1024 - sum(size * count for size, count in numa.hugepages)) // 4
    lines = [f"      <cells num='{numa.cells}'>\n"]
    for cell in range(numa.cells):
        distances = "".join(
            f"            <sibling id='{other}' value='{10 if other == cell else 21}'/>\n"
            for other in range(numa.cells)
        )
        lines.append(f"""        <cell id='{cell}'>
          <memory unit='KiB'>{numa.memory_mb_per_cell * 1024}</memory>
          <pages unit='KiB' size='4'>{small}</pages>
          <pages unit='KiB' size='2048'>{pages.get(2048, 0)}</pages>
          <pages unit='KiB' size='1048576'>{pages.get(1048576, 0)}</pages>
          <distances>
{distances}          </distances>
          <cpus num='{numa.cpus_per_cell}'>
{_cpus(numa, cell)}          </cpus>
        </cell>
""")
    lines.append("      </cells>\n")
    return "".join(lines)


def _cpus(numa: NumaSpec, cell: int) -> str:
    """CPUs are numbered as Linux does on servers: the first thread of every core, then the second of every core."""
    cores_per_cell = numa.cpus_per_cell // numa.threads_per_core
    cores = cores_per_cell * numa.cells
    lines = []
    for thread in range(numa.threads_per_core):
        for core in range(cell * cores_per_cell, (cell + 1) * cores_per_cell):
            siblings = ",".join(str(core + cores * t) for t in range(numa.threads_per_core))
            socket = core * numa.sockets // cores
            lines.append(
                f"            <cpu id='{core + cores * thread}' socket_id='{socket}' die_id='0' "
                f"core_id='{core}' siblings='{siblings}'/>\n"
            )
    return "".join(lines)
