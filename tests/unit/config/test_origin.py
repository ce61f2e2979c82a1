"""Which file an option stands in, for errors of a content that is understood late."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetbridge.config.load import load_settings
from jetbridge.config.origin import naming_origin
from jetbridge.config.settings import Settings
from jetbridge.errors import PciInvalidAlias
from jetbridge.pci.alias import parse_aliases


def test_an_alias_that_lacks_an_id_is_told_with_line_fix_and_file(tmp_path: Path) -> None:
    path = tmp_path / "nova.conf"
    path.write_text('[pci]\nalias = {"name": "GPU", "vendor_id": "10de"}\n')
    settings = load_settings([path]).settings
    with pytest.raises(PciInvalidAlias) as caught, naming_origin(settings, "pci", "alias"):
        parse_aliases(settings.pci_alias)
    assert caught.value.message == (
        'Invalid [pci]alias config: GPU: needs vendor_id and product_id, in \'{"name": "GPU", "vendor_id": "10de"}\'; write'
        ' {"name": "GPU", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PCI"}'
        f". [pci]alias stands in {path}"
    )


def test_of_an_option_that_no_file_has_nothing_is_added() -> None:
    with pytest.raises(PciInvalidAlias, match=r"reason$"), naming_origin(Settings(), "pci", "alias"):
        raise PciInvalidAlias("reason")


def test_a_sentence_that_ends_has_one_end(tmp_path: Path) -> None:
    path = tmp_path / "nova.conf"
    path.write_text("[pci]\nalias = {}\n")
    settings = load_settings([path]).settings
    for reason, told in (("did you mean name?", "did you mean name? [pci]"), ("write a name.", "write a name. [pci]")):
        with pytest.raises(PciInvalidAlias) as caught, naming_origin(settings, "pci", "alias"):
            raise PciInvalidAlias(reason)
        assert f"{told}alias stands in {path}" in caught.value.message
