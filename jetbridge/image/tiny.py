"""The built-in image ``tiny``: a raw disk that boots, says so on the serial console, and halts.

It needs no operating system, so a first boot needs no download, and a console log proves that a guest really ran.
Built from the bytes below: the same on every machine.
"""

from __future__ import annotations

import struct

SIZE = 1024 * 1024
MESSAGE = b"Jetbridge: the guest is up\n"

_LOADED_AT = 0x7C00  # where a BIOS puts the boot sector
_SECTOR = 512


def _code(message_at: int) -> bytes:
    """Real-mode x86: set up COM1 (115200 baud, 8N1), write the message at address ``message_at``, halt for good."""
    return b"".join(
        (
            b"\xfa",  # cli
            b"\xfc",  # cld
            b"\x31\xc0",  # xor ax, ax
            b"\x8e\xd8",  # mov ds, ax
            b"\xba\xfb\x03",  # mov dx, 0x3fb      line control register
            b"\xb0\x80",  # mov al, 0x80
            b"\xee",  # out dx, al          the next two registers are the divisor
            b"\xba\xf8\x03",  # mov dx, 0x3f8
            b"\xb0\x01",  # mov al, 1           115200 / 1
            b"\xee",  # out dx, al
            b"\x42",  # inc dx
            b"\x30\xc0",  # xor al, al
            b"\xee",  # out dx, al
            b"\xba\xfb\x03",  # mov dx, 0x3fb
            b"\xb0\x03",  # mov al, 3           8 bits, no parity, 1 stop bit
            b"\xee",  # out dx, al
            b"\xbe" + struct.pack("<H", message_at),  # mov si, message
            # next:
            b"\xac",  # lodsb
            b"\x84\xc0",  # test al, al
            b"\x74\x11",  # jz halt
            b"\x88\xc3",  # mov bl, al
            # wait (a port that isn't there reads as ones: this ends without COM1 too)
            b"\xba\xfd\x03",  # mov dx, 0x3fd      line status register
            b"\xec",  # in al, dx
            b"\xa8\x20",  # test al, 0x20       transmitter empty
            b"\x74\xfb",  # jz in
            b"\x88\xd8",  # mov al, bl
            b"\xb2\xf8",  # mov dl, 0xf8
            b"\xee",  # out dx, al
            b"\xeb\xea",  # jmp next
            # halt:
            b"\xf4",  # hlt
            b"\xeb\xfd",  # jmp halt
        )
    )


def boot_sector() -> bytes:
    """512 bytes: code, message, one partition (disk inspectors doubt a table without any), boot signature."""
    code = _code(_LOADED_AT + len(_code(0)))
    program = code + MESSAGE + b"\0"
    partition = struct.pack("<B3sB3sII", 0x80, b"\x00\x02\x00", 0xDA, b"\x20\x20\x00", 1, SIZE // _SECTOR - 1)
    return program.ljust(446, b"\0") + partition.ljust(64, b"\0") + b"\x55\xaa"


def tiny_disk() -> bytes:
    return boot_sector().ljust(SIZE, b"\0")
