#include "guest.h"

/* A device that never answers must not hang the guest; speed differs by thousands between emulators, so seconds are counted. */
#define PATIENCE_SECONDS 10
#define WAIT_FOR(condition) ({ \
    int left_ = PATIENCE_SECONDS, met_; \
    for (u8 second_ = clock_second(); !(met_ = !!(condition)) && left_; ) \
        if (clock_second() != second_) { second_ = clock_second(); left_--; } \
    met_; })

static u8 page[4][4096] __attribute__((aligned(4096)));

static u8 clock_second(void)
{
    out8(0x70, 0);
    return in8(0x71);
}

static void clear_pages(void)
{
    for (u32 i = 0; i < sizeof page; i++)
        ((volatile u8 *)page)[i] = 0;
}

static void put_value(const char *name, u32 value)
{
    put(" ");
    put(name);
    put(" ");
    put_hex(value, 8);
}

static void put_dma(int works) { put(works ? " dma ok\n" : " dma failed\n"); }

/* QEMU's device for teaching (docs/specs/edu in QEMU): a liveness check, a factorial, and a DMA engine with 4 KiB of its own */
static int edu_copy(u32 bar, u32 from, u32 to, u32 length, u32 command)
{
    REG(bar + 0x80) = from;
    REG(bar + 0x84) = 0;
    REG(bar + 0x88) = to;
    REG(bar + 0x8c) = 0;
    REG(bar + 0x90) = length;
    REG(bar + 0x94) = 0;
    REG(bar + 0x98) = command;
    return WAIT_FOR(!(REG(bar + 0x98) & 1));
}

static void probe_edu(u32 bar)
{
    volatile u8 *sent = page[0], *received = page[1];

    put_value("ident", REG(bar));
    REG(bar + 4) = 0x12345678;
    put_value("live", REG(bar + 4));
    REG(bar + 8) = 10;
    WAIT_FOR(!(REG(bar + 0x20) & 1));
    put_value("factorial", REG(bar + 8));
    for (int i = 0; i < 128; i++)
        sent[i] = i ^ 0x5a;
    memory_barrier();
    int ok = edu_copy(bar, (u32)sent, 0x40000, 128, 1) && edu_copy(bar, 0x40000, (u32)received, 128, 3);
    memory_barrier();
    for (int i = 0; i < 128; i++)
        ok = ok && received[i] == (u8)(i ^ 0x5a);
    put_dma(ok);
}

/* Intel's 8254x and 82574: a frame is sent, and the card writes into the descriptor that it did (datasheet, transmit descriptors) */
static void probe_intel_nic(u32 bar)
{
    volatile u32 *descriptor = (volatile u32 *)page[0];

    REG(bar) |= 1 << 26; /* reset: the card may still have the rings of the host's driver */
    WAIT_FOR(!(REG(bar) & 1 << 26));
    put_value("status", REG(bar + 8));
    u32 low = REG(bar + 0x5400), high = REG(bar + 0x5404);
    put(" mac ");
    for (int i = 0; i < 6; i++) {
        put_hex((i < 4 ? low >> (8 * i) : high >> (8 * (i - 4))) & 0xff, 2);
        put(i < 5 ? ":" : "");
    }
    for (int i = 0; i < 12; i++)
        page[1][i] = 0xff;
    descriptor[0] = (u32)page[1];
    descriptor[1] = 0;
    descriptor[2] = 60 | 0x0b << 24; /* length; end of packet, checksum, report */
    descriptor[3] = 0;
    memory_barrier();
    REG(bar + 0x3800) = (u32)page[0];
    REG(bar + 0x3804) = 0;
    REG(bar + 0x3808) = 128; /* bytes of the ring */
    REG(bar + 0x3810) = 0;
    REG(bar + 0x3818) = 0;
    REG(bar + 0x0400) = 1 << 1 | 1 << 3; /* transmit, pad short frames */
    REG(bar + 0x3818) = 1;
    put_dma(WAIT_FOR(descriptor[3] & 1));
}

/* NVM Express base specification: controller initialisation, and Identify Controller by the admin queue */
static void probe_nvme(u32 bar)
{
    volatile u32 *submission = (volatile u32 *)page[0], *completion = (volatile u32 *)page[1];
    volatile u8 *identity = page[2];
    u32 stride = REG(bar + 4) & 15;

    put_value("version", REG(bar + 8));
    REG(bar + 0x14) = 0;
    WAIT_FOR(!(REG(bar + 0x1c) & 1));
    REG(bar + 0x24) = 7 << 16 | 7;
    REG(bar + 0x28) = (u32)submission;
    REG(bar + 0x2c) = 0;
    REG(bar + 0x30) = (u32)completion;
    REG(bar + 0x34) = 0;
    REG(bar + 0x14) = 4 << 20 | 6 << 16 | 1;
    int ok = WAIT_FOR(REG(bar + 0x1c) & 3) && !(REG(bar + 0x1c) & 2);
    put_value("csts", REG(bar + 0x1c));
    submission[0] = 1 << 16 | 6;
    submission[6] = (u32)identity;
    submission[10] = 1;
    memory_barrier();
    REG(bar + 0x1000) = 1;
    ok = ok && WAIT_FOR(completion[3] & 1 << 16) && !(completion[3] >> 17);
    REG(bar + 0x1000 + (4 << stride)) = 1;
    put(" serial ");
    put_padded(identity + 4, 20);
    put_dma(ok);
    REG(bar + 0x14) = 0; /* no queue of this guest stays in a controller that outlives it */
}

/* A 16550 that hears itself: the kernel's samples/vfio-mdev/mtty.c */
static void probe_serial(u32 port)
{
    out8(port, 'V');
    put(" echo ");
    put_hex(in8(port), 2);
    put("\n");
}

void probe_device(u32 function, u32 id, u32 class, u32 bar)
{
    u32 vendor = id & 0xffff, product = id >> 16;
    const char *name = 0;
    void (*probe)(u32) = 0;

    if (id == 0x11e81234) {
        name = "edu";
        probe = probe_edu;
    } else if (vendor == 0x8086 && (product == 0x10d3 || product == 0x100e || product == 0x100c || product == 0x100f)) {
        name = "nic";
        probe = probe_intel_nic;
    } else if (class == 0x010802) {
        name = "nvme";
        probe = probe_nvme;
    } else if (id == 0x32534348) {
        name = "serial";
        probe = probe_serial;
    }
    if (!probe)
        return;
    clear_pages();
    put("device ");
    put_function(function);
    put(" ");
    put(name);
    if (probe == probe_serial)
        put_value("ports", pci_read(function, 20) ? 2 : 1);
    probe(bar);
}
