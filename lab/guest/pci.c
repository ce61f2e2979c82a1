#include "guest.h"

#define CONFIG_ADDRESS 0xcf8
#define CONFIG_DATA 0xcfc

u32 pci_read(u32 function, u32 offset)
{
    out32(CONFIG_ADDRESS, 0x80000000u | function << 8 | (offset & 0xfc));
    return in32(CONFIG_DATA);
}

void pci_write(u32 function, u32 offset, u32 value)
{
    out32(CONFIG_ADDRESS, 0x80000000u | function << 8 | (offset & 0xfc));
    out32(CONFIG_DATA, value);
}

void put_function(u32 function)
{
    put_hex(function >> 8, 2);
    put(":");
    put_hex(function >> 3 & 31, 2);
    put(".");
    put_hex(function & 7, 1);
}

static void report_bus(u32 bus);

static void report_function(u32 function, u32 id)
{
    u32 class = pci_read(function, 8) >> 8, header = pci_read(function, 12) >> 16 & 0x7f;

    put("pci ");
    put_function(function);
    put(" ");
    put_hex(id & 0xffff, 4);
    put(":");
    put_hex(id >> 16, 4);
    put(" class ");
    put_hex(class, 6);
    if (header == 1) {
        put(" bridge\n");
        /* Only buses that exist are looked at: each read costs much in an emulator inside an emulator. */
        u32 secondary = pci_read(function, 0x18) >> 8 & 0xff;
        if (secondary > function >> 8)
            report_bus(secondary);
        return;
    }
    u32 bar = pci_read(function, 16);
    put(" bar0 ");
    put_hex(bar, 8);
    put("\n");
    u32 high = (bar & 6) == 4 ? pci_read(function, 20) : 0;
    if (bar && !high) {
        pci_write(function, 4, (pci_read(function, 4) & 0xffff) | (bar & 1 ? 1 : 6)); /* ports; or memory space, bus master */
        probe_device(function, id, class, bar & (bar & 1 ? ~3u : ~15u));
    }
}

static void report_bus(u32 bus)
{
    for (u32 slot = 0; slot < 32; slot++) {
        u32 first = bus << 8 | slot << 3;
        for (u32 function = first; function < first + 8; function++) {
            u32 id = pci_read(function, 0);
            if (id != 0xffffffff && id)
                report_function(function, id);
            if (function == first && (id == 0xffffffff || !id || !(pci_read(function, 12) & 0x800000)))
                break; /* no such slot, or a device of one function */
        }
    }
}

void pci_report(void) { report_bus(0); }
