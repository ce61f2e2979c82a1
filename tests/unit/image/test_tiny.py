"""The built-in image, run by a tiny interpreter of the instructions it uses: what would a BIOS and COM1 see?"""

from __future__ import annotations

import hashlib
import struct

from jetbridge.image import tiny


def run(sector: bytes, *, ready_after: int = 3, limit: int = 5000) -> tuple[bytes, list[tuple[int, int]]]:
    """Executes the boot sector until it halts. The transmitter is busy for ``ready_after`` reads after each byte.
    Answers what was sent, and every write to a port."""
    registers = {"ax": 0xFFFF, "bx": 0, "dx": 0, "si": 0}
    pointer, zero, busy = 0, False, 0
    sent = bytearray()
    writes: list[tuple[int, int]] = []
    line_control = 0

    def low(name: str) -> int:
        return registers[name] & 0xFF

    def set_low(name: str, value: int) -> None:
        registers[name] = (registers[name] & 0xFF00) | (value & 0xFF)

    for _ in range(limit):
        opcode = sector[pointer]
        operand = sector[pointer + 1 : pointer + 3]
        match opcode:
            case 0xFA | 0xFC:
                pointer += 1
            case 0x31:
                assert operand[0] == 0xC0
                registers["ax"] = 0
                pointer += 2
            case 0x8E:
                assert operand[0] == 0xD8
                assert registers["ax"] == 0
                pointer += 2
            case 0xBA:
                registers["dx"] = struct.unpack("<H", operand)[0]
                pointer += 3
            case 0xBE:
                registers["si"] = struct.unpack("<H", operand)[0]
                pointer += 3
            case 0xB0:
                set_low("ax", operand[0])
                pointer += 2
            case 0xB2:
                set_low("dx", operand[0])
                pointer += 2
            case 0x30:
                set_low("ax", 0)
                pointer += 2
            case 0x42:
                registers["dx"] += 1
                pointer += 1
            case 0xEE:
                port, value = registers["dx"], low("ax")
                writes.append((port, value))
                if port == 0x3FB:
                    line_control = value
                elif port == 0x3F8 and not line_control & 0x80:
                    assert busy == 0, "a byte was written while the transmitter was busy"
                    sent.append(value)
                    busy = ready_after
                pointer += 1
            case 0xEC:
                assert registers["dx"] == 0x3FD
                set_low("ax", 0x00 if busy else 0x20)
                busy = max(0, busy - 1)
                pointer += 1
            case 0xA8:
                zero = low("ax") & operand[0] == 0
                pointer += 2
            case 0x84:
                zero = low("ax") == 0
                pointer += 2
            case 0xAC:
                set_low("ax", sector[registers["si"] - 0x7C00])
                registers["si"] += 1
                pointer += 1
            case 0x88:
                source, target = ("ax", "bx") if operand[0] == 0xC3 else ("bx", "ax")
                set_low(target, low(source))
                pointer += 2
            case 0x74 | 0xEB:
                jump = opcode == 0xEB or zero
                pointer += 2 + (struct.unpack("<b", operand[:1])[0] if jump else 0)
            case 0xF4:
                after = sector[pointer + 1 : pointer + 3]
                assert after[0] == 0xEB
                assert pointer + 3 + struct.unpack("<b", after[1:])[0] == pointer, "an interrupt would run into data"
                return bytes(sent), writes
            case _:
                raise AssertionError(f"instruction {opcode:#x} at {pointer:#x} is not known")
    raise AssertionError(f"it never halts; sent so far: {bytes(sent[:80])!r}")


def test_guest_writes_the_line_once_and_halts() -> None:
    sent, writes = run(tiny.boot_sector())
    assert sent == b"Jetbridge: the guest is up\n"
    assert writes[:5] == [(0x3FB, 0x80), (0x3F8, 1), (0x3F9, 0), (0x3FB, 3), (0x3F8, ord("J"))]


def test_guest_waits_for_a_slow_transmitter() -> None:
    sent, _ = run(tiny.boot_sector(), ready_after=40, limit=20000)
    assert sent == tiny.MESSAGE


def test_disk_is_one_mib_with_a_boot_signature_and_one_partition_inside_it() -> None:
    disk = tiny.tiny_disk()
    assert len(disk) == 1024 * 1024
    assert disk[510:512] == b"\x55\xaa"
    entries = [disk[446 + 16 * n : 462 + 16 * n] for n in range(4)]
    assert entries[1:] == [bytes(16)] * 3
    first, count = struct.unpack("<II", entries[0][8:])
    assert (entries[0][0], first, first + count) == (0x80, 1, len(disk) // 512)


def test_disk_is_the_same_everywhere() -> None:
    assert hashlib.sha256(tiny.tiny_disk()).hexdigest() == (
        "c5f425a462f2d1c6cd6866dc3d4717708dca08c7b55d0ed3926c5bea3cae55df"
    )
