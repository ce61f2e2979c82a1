"""Whole guest documents against golden files, libvirt's own schema, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from jetbridge.errors import GuestXmlInvalid, PciDeviceWrongAddressFormat
from jetbridge.numa.cpulist import format_cpu_list
from jetbridge.pci.port import VnicType
from jetbridge.virt.guest import (
    GuestNic,
    HostAddress,
    attached_xml,
    build_domain,
    hostdev_xml,
    hostdevs_of,
    lent_paths,
    mdevs_of,
    nic_xml,
    parse_domain,
    read_address,
    uses_nvram,
)
from jetbridge.virt.guest.mapping import parse_cpu_set
from tests.unit.virt.guests import MDEVS, NICS, device, golden_cases, port_nics, request, translate

GOLDEN = Path(__file__).parent / "golden"
CASES = golden_cases()
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


@pytest.fixture(scope="session")
def schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


@pytest.mark.parametrize("name", CASES)
def test_document_is_the_golden_one(name: str) -> None:
    assert build_domain(CASES[name].guest) == (GOLDEN / f"{name}.xml").read_text()


@pytest.mark.parametrize("name", CASES)
def test_building_and_parsing_are_one_declaration(name: str) -> None:
    assert parse_domain((GOLDEN / f"{name}.xml").read_text()) == CASES[name].guest


def test_every_golden_document_has_its_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.xml")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_libvirt_schema_accepts(name: str, schema: etree.RelaxNG) -> None:
    assert schema.validate(etree.parse(str(GOLDEN / f"{name}.xml"))), schema.error_log


def element_schema(name: str) -> etree.RelaxNG:
    # The domain's schema file starts at <domain>; the element's own definition is what attaching is checked by.
    grammar = (
        f'<grammar xmlns="http://relaxng.org/ns/structure/1.0"><start><ref name="{name}"/></start>'
        '<include href="file:///usr/share/libvirt/schemas/domaincommon.rng"/></grammar>'
    )
    return etree.RelaxNG(etree.fromstring(grammar))


def test_libvirt_schema_accepts_a_hostdev_alone() -> None:
    schema = element_schema("hostdev")
    assert schema.validate(etree.fromstring(hostdev_xml("0000:3b:00.4", managed=False))), schema.error_log


@pytest.mark.parametrize("nic", [*NICS, *port_nics().values()], ids=lambda nic: str(nic.vnic_type))
def test_libvirt_schema_accepts_a_nic_alone(nic: GuestNic) -> None:
    xml = nic_xml(nic)
    whole = nic.vnic_type in (VnicType.DIRECT_PHYSICAL, VnicType.ACCELERATOR_DIRECT_PHYSICAL)
    schema = element_schema("hostdev" if whole else "interface")
    assert schema.validate(etree.fromstring(xml)), schema.error_log


@pytest.mark.parametrize("nic", [*NICS, *port_nics().values()], ids=lambda nic: str(nic.vnic_type))
def test_a_nic_is_found_again_in_its_domain(nic: GuestNic) -> None:
    xml = build_domain(translate(nics=(*NICS, *port_nics().values())).guest)
    found = attached_xml(xml, nic.mac.upper(), nic.address)
    assert found is not None
    assert found.split() == nic_xml(nic).split()
    assert attached_xml(xml, "fa:16:3e:ff:ff:ff", "0000:00:1f.7") is None


def test_what_the_host_lends_to_a_guest_is_found_in_its_domain() -> None:
    xml = build_domain(translate(nics=(*NICS, *port_nics().values())).guest)
    assert lent_paths(xml) == ("enp161s0f0v1", "/dev/vhost-vdpa-3")
    passed = ("0000:a1:00.2", "0000:a1:00.4", "0000:a1:00.7", "0000:c1:00.0", "0000:d1:00.0")
    assert sorted(hostdevs_of(xml)) == sorted(passed)


def test_hostdev_has_the_shape_of_the_field() -> None:
    written = " ".join(hostdev_xml("0000:3b:00.4", managed=False).split()).replace("> <", "><")
    assert written == (
        '<hostdev mode="subsystem" type="pci" managed="no"><source>'
        '<address domain="0x0000" bus="0x3b" slot="0x00" function="0x4"/></source></hostdev>'
    )


def test_a_mediated_device_has_the_shape_of_the_field_and_no_pci_address() -> None:
    written = " ".join((GOLDEN / "two-vgpus.xml").read_text().split()).replace("> <", "><")
    assert written.count("<hostdev") == 2
    for uuid in MDEVS:
        assert (
            '<hostdev mode="subsystem" type="mdev" managed="no" model="vfio-pci">'
            f'<source><address uuid="{uuid}"/></source></hostdev>'
        ) in written


def test_hostdevs_are_compared_as_numbers_with_or_without_prefix() -> None:
    prefixed = "<source><address domain='0x0000' bus='0x3b' slot='0x00' function='0x4'/></source>"
    bare = "<source><address domain='0' bus='3B' slot='0' function='4'/></source>"
    documents = [
        f"<domain><devices><hostdev mode='subsystem' type='pci'>{source}</hostdev></devices></domain>"
        for source in (prefixed, bare)
    ]
    assert [hostdevs_of(document) for document in documents] == [("0000:3b:00.4",)] * 2


def test_hostdevs_of_a_foreign_domain_include_interfaces_and_leave_out_other_kinds() -> None:
    xml = """<domain type='kvm'><devices>
      <hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>
      <hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>
      <interface type='hostdev' managed='yes'><source><address type='pci' domain='0x0000' bus='0x81' slot='0x10' function='0x2'/></source>
        <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></interface>
      <hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x0001' bus='0x3b' slot='0x1f' function='0x7'/></source>
        <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/></hostdev>
    </devices></domain>"""
    assert hostdevs_of(xml) == ("0000:81:10.2", "0001:3b:1f.7")
    assert mdevs_of(xml) == ("c2177883-f1bb-47f0-914d-32a22e3a8804",)


def test_a_domain_without_devices_has_no_hostdevs() -> None:
    assert hostdevs_of("<domain/>") == ()
    assert mdevs_of("<domain/>") == ()


@pytest.mark.parametrize(
    ("xml", "named"),
    [
        ("<domain", "the document"),
        ("<domain type='kvm'><uuid>x</uuid></domain>", "domain/name"),
        ("<domain type='kvm'><name>a</name><uuid>u</uuid><memory unit='KiB'>lots</memory><vcpu placement='static'>1</vcpu></domain>", "'lots'"),
    ],
)  # fmt: skip
def test_what_is_missing_or_malformed_is_named(xml: str, named: str) -> None:
    with pytest.raises(GuestXmlInvalid, match=named):
        parse_domain(xml)


def test_external_entities_are_not_read() -> None:
    xml = '<!DOCTYPE domain [<!ENTITY e SYSTEM "file:///etc/hostname">]><domain type="kvm"><name>&e;</name></domain>'
    with pytest.raises(GuestXmlInvalid):
        parse_domain(xml)


def test_only_uefi_guests_have_nvram() -> None:
    assert uses_nvram((GOLDEN / "uefi-and-pcie-ports.xml").read_text())
    assert not uses_nvram((GOLDEN / "one-gpu.xml").read_text())


# --- the strict address reader -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["3b:00.0", "0000:3b:00.8", "0000:3b:0.0", "0000:3b:00.0 ", "", "00000:3b:00.0", "0000:3b:00.0\n"])  # fmt: skip
def test_addresses_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(PciDeviceWrongAddressFormat):
        read_address(text)


def test_any_one_character_parts_slot_and_function_and_the_slot_is_not_bounded() -> None:
    assert str(read_address("00A0:3B:ff:7")) == "00a0:3b:ff.7"


@given(
    st.builds(HostAddress, st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7)),
    st.booleans(),
)
def test_any_address_survives_the_document(address: HostAddress, managed: bool) -> None:
    guest = translate(requests=(request("r1"),), devices=(device(str(address), "r1", managed=managed),)).guest
    xml = build_domain(guest)
    assert hostdevs_of(xml) == (str(address),)
    assert parse_domain(xml) == guest


@given(st.frozensets(st.integers(0, 300)))
def test_cpu_sets_survive_their_text(cpus: frozenset[int]) -> None:
    text = format_cpu_list(cpus)
    assert parse_cpu_set(text) == cpus if cpus else text == ""


def test_cpu_sets_are_read_as_libvirt_does() -> None:
    assert parse_cpu_set("0-3,^2,8") == {0, 1, 3, 8}
