#include "guest.h"

#define LPC_BRIDGE (0x1f << 3)
#define LPC_PMBASE 0x40
#define TIMER_VECTOR 0x20

static u16 pm; /* the ICH9's power management ports: status, enable, control */

struct gate { u16 low, selector, flags, high; };
static struct gate idt[TIMER_VECTOR + 1];
static struct __attribute__((packed)) { u16 limit; u32 base; } idt_register = {sizeof idt - 1, (u32)idt};

void on_timer(void);
__asm__(".globl on_timer\non_timer: pushl %eax\n movb $0x20,%al\n outb %al,$0x20\n popl %eax\n iretl");

void power_init(void)
{
    pm = pci_read(LPC_BRIDGE, LPC_PMBASE) & 0xff80;
    out16(pm + 2, 1 << 8); /* without its enable bit a pressed power button leaves no trace */
    idt[TIMER_VECTOR] = (struct gate){(u32)on_timer & 0xffff, 8, 0x8e00, (u32)on_timer >> 16};
    __asm__ volatile("lidt %0" ::"m"(idt_register));
    out8(0x20, 0x11); /* interrupt controllers: vectors from 0x20, all masked but the timer */
    out8(0xa0, 0x11);
    out8(0x21, TIMER_VECTOR);
    out8(0xa1, TIMER_VECTOR + 8);
    out8(0x21, 4);
    out8(0xa1, 2);
    out8(0x21, 1);
    out8(0xa1, 1);
    out8(0x21, 0xfe);
    out8(0xa1, 0xff);
    out8(0x43, 0x34); /* timer 0: as slow as it goes */
    out8(0x40, 0);
    out8(0x40, 0);
}

void wait_for_tick(void) { __asm__ volatile("sti\n hlt\n cli" ::: "memory"); }

int power_button_pressed(void) { return in16(pm) >> 8 & 1; }

void power_off(void)
{
    serial_drain();
    out16(pm + 4, 1 << 13); /* sleep enable, type 0: S5 of QEMU's q35 */
    for (;;)
        __asm__ volatile("cli\n hlt");
}
