"""Image files made byte by byte (https://www.qemu.org/docs/master/interop/qcow2.html)."""

from __future__ import annotations

import struct

MIB = 1024 * 1024


def qcow2(*, virtual_size: int = 10 * MIB, version: int = 3, backing_offset: int = 0, features: int = 0) -> bytes:
    """The header of a qcow2 image, and enough of a body."""
    header = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        b"QFI\xfb",
        version,
        backing_offset,
        8 if backing_offset else 0,
        16,
        virtual_size,
        0,
        1,
        3 * 65536,
        65536,
        1,
        1,
        0,
        features,
        0,
        0,
        4,
        104,
    )
    return header.ljust(4 * 65536, b"\0")


def iso() -> bytes:
    return (b"\0" * 32768 + b"\x01CD001\x01").ljust(64 * 1024, b"\0")


def vmdk() -> bytes:
    header = struct.pack("<4sIIQQQQ", b"KDMV", 1, 3, 20480, 128, 1, 20)
    descriptor = b'# Disk DescriptorFile\nversion=1\ncreateType="monolithicSparse"\nRW 20480 SPARSE "/etc/passwd"\n'
    return header.ljust(512, b"\0") + descriptor.ljust(128 * 1024, b"\0")
