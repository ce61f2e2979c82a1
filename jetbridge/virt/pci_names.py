"""Names and classes of the PCI functions people pass through; the numbers are those of https://pci-ids.ucw.cz."""

from __future__ import annotations

VENDORS = {
    "1000": "Broadcom / LSI",
    "1002": "Advanced Micro Devices, Inc. [AMD/ATI]",
    "10de": "NVIDIA Corporation",
    "1234": "QEMU",
    "144d": "Samsung Electronics Co Ltd",
    "14e4": "Broadcom Inc. and subsidiaries",
    "15b3": "Mellanox Technologies",
    "1af4": "Red Hat, Inc.",
    "1b36": "Red Hat, Inc.",
    "8086": "Intel Corporation",
}

VGA, DISPLAY_3D, AUDIO = "0x030000", "0x030200", "0x040300"
ETHERNET, NVME, BRIDGE = "0x020000", "0x010802", "0x060400"
ACCELERATOR = "0x120000"

PRODUCTS: dict[tuple[str, str], tuple[str, str]] = {
    ("1000", "c030"): ("PEX890xx PCIe Gen 5 Switch", BRIDGE),
    ("1002", "74a1"): ("Aqua Vanjaram [Instinct MI300X]", ACCELERATOR),
    ("10de", "1db6"): ("GV100GL [Tesla V100 PCIe 32GB]", DISPLAY_3D),
    ("10de", "1eb8"): ("TU104GL [Tesla T4]", DISPLAY_3D),
    ("10de", "20b5"): ("GA100 [A100 PCIe 80GB]", DISPLAY_3D),
    ("10de", "20f1"): ("GA100 [A100 PCIe 40GB]", DISPLAY_3D),
    ("10de", "22ba"): ("AD102 High Definition Audio Controller", AUDIO),
    ("10de", "2330"): ("GH100 [H100 SXM5 80GB]", DISPLAY_3D),
    ("10de", "2684"): ("AD102 [GeForce RTX 4090]", VGA),
    ("10de", "26b5"): ("AD102GL [L40]", DISPLAY_3D),
    ("10de", "26b9"): ("AD102GL [L40S]", DISPLAY_3D),
    ("144d", "a80a"): ("NVMe SSD Controller PM9A1/PM9A3/980PRO", NVME),
    ("15b3", "1017"): ("MT27800 Family [ConnectX-5]", ETHERNET),
    ("15b3", "101d"): ("MT2892 Family [ConnectX-6 Dx]", ETHERNET),
    ("15b3", "101e"): ("ConnectX Family mlx5Gen Virtual Function", ETHERNET),
    ("8086", "10c9"): ("82576 Gigabit Network Connection", ETHERNET),
    ("8086", "10ca"): ("82576 Virtual Function", ETHERNET),
    ("8086", "154c"): ("Ethernet Virtual Function 700 Series", ETHERNET),
    ("8086", "1572"): ("Ethernet Controller X710 for 10GbE SFP+", ETHERNET),
    ("8086", "352a"): ("PCIe Root Port", BRIDGE),
}

_DEFAULT_CLASS = {"10de": DISPLAY_3D, "1002": DISPLAY_3D, "15b3": ETHERNET, "144d": NVME}

# Base class, and base class with sub-class, as the PCI Code and ID Assignment Specification names them.
_CLASSES = {
    "0106": "SATA controller",
    "0108": "NVMe controller",
    "01": "Storage controller",
    "0200": "Ethernet controller",
    "0207": "InfiniBand controller",
    "02": "Network controller",
    "0300": "VGA controller",
    "0302": "3D controller",
    "03": "Display controller",
    "0403": "Audio device",
    "04": "Multimedia controller",
    "05": "Memory controller",
    "0600": "Host bridge",
    "0601": "ISA bridge",
    "0604": "PCI bridge",
    "06": "Bridge",
    "07": "Communication controller",
    "08": "System peripheral",
    "0b40": "Co-processor",
    "0c03": "USB controller",
    "0c05": "SMBus",
    "0c": "Serial bus controller",
    "0d": "Wireless controller",
    "10": "Encryption controller",
    "12": "Processing accelerator",
}


def class_name(class_code: str | None) -> str:
    """Name of a class such as 0x030200; the number itself when it has no name here."""
    digits = (class_code or "").removeprefix("0x")
    return _CLASSES.get(digits[:4]) or _CLASSES.get(digits[:2]) or class_code or "unknown"


def default_class(vendor_id: str, product_id: str, *, network: bool) -> str:
    """The class a function of these ids has; ``network``: it has an interface."""
    known = PRODUCTS.get((vendor_id, product_id))
    if known:
        return known[1]
    return ETHERNET if network else _DEFAULT_CLASS.get(vendor_id, ACCELERATOR)
