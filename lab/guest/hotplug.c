#include "guest.h"

/* QEMU's registers for ACPI hotplug on q35 (docs/specs/acpi_pci_hotplug.rst) */
#define PORT 0xcc0
#define BUS_SELECT (PORT + 0x10)
#define DEVICES_DOWN (PORT + 4)
#define EJECT (PORT + 8)
#define BUSES 32

void hotplug_answer(void)
{
    for (u32 bus = 0; bus < BUSES; bus++) {
        out32(BUS_SELECT, bus);
        u32 leaving = in32(DEVICES_DOWN);
        if (leaving && leaving != 0xffffffff) {
            put("guest: let go of slots ");
            put_hex(leaving, 8);
            put("\n");
            out32(EJECT, leaving);
        }
    }
}
