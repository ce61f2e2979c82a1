"""Input that a fuzz run found to end in another exception than a clear error."""

from __future__ import annotations

import pytest

from jetbridge.errors import InvalidNumaRequest, PciConfigInvalidSpec, PciInvalidAlias
from jetbridge.numa.request import guest_topology
from jetbridge.pci.alias import parse_aliases
from jetbridge.pci.device_spec import parse_device_specs
from tests.unit.pci.build import Facts

DEEP = "[" * 20000
LONG = "9" * 5000


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(PciInvalidAlias, match="is not JSON"):
        parse_aliases([DEEP])
    with pytest.raises(PciConfigInvalidSpec, match="is not JSON"):
        parse_device_specs([DEEP], Facts())


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:numa_nodes": LONG},
        {"hw:mem_page_size": LONG},
        {"hw:mem_page_size": "2\N{KELVIN SIGN}"},
        {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3", "hw:numa_mem.0": LONG},
    ],
)
def test_numbers_that_python_refuses_to_read_are_refused(specs: dict[str, str]) -> None:
    with pytest.raises(InvalidNumaRequest, match="Invalid hw:"):
        guest_topology(4, 1024, specs, {})
