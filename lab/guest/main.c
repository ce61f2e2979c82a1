#include "guest.h"

#define MULTIBOOT 0x1BADB002
#define MULTIBOOT_LOADED 0x2BADB002
#define TICKS_BETWEEN_LOOKS 18 /* a second: each look at a port costs an emulator */

__attribute__((section(".multiboot"), used)) static const u32 header[] = {MULTIBOOT, 0, (u32)-MULTIBOOT};

/* A boot loader's segments may vanish with it, and interrupts load them anew (Multiboot specification, machine state). */
__attribute__((used)) static const unsigned long long gdt[] = {0, 0x00cf9a000000ffffull, 0x00cf92000000ffffull};
__attribute__((used)) static const struct __attribute__((packed)) { u16 limit; u32 base; } gdt_register = {sizeof gdt - 1, (u32)gdt};

__asm__(".globl _start\n_start:\n cli\n movl $stack,%esp\n lgdt gdt_register\n ljmp $8,$1f\n"
        "1: movl $16,%ecx\n movl %ecx,%ds\n movl %ecx,%es\n movl %ecx,%ss\n"
        " pushl %ebx\n pushl %eax\n call guest_main\n"
        ".bss\n .balign 16\n .skip 16384\nstack:\n.text");

/* multiboot: the loader's information; its command line has the image's os_command_line */
static int told(u32 magic, const u32 *multiboot, const char *word)
{
    if (magic != MULTIBOOT_LOADED || !(multiboot[0] & 4))
        return 0;
    for (const char *text = (const char *)multiboot[4]; *text; text++) {
        int i = 0;
        while (word[i] && text[i] == word[i])
            i++;
        if (!word[i])
            return 1;
    }
    return 0;
}

void guest_main(u32 magic, const u32 *multiboot)
{
    serial_init();
    power_init();
    put("\nguest: up\n");
    pci_report();
    put("guest: ready\n");
    if (told(magic, multiboot, "poweroff"))
        power_off();
    int ticks = 0;
    while (!power_button_pressed()) {
        wait_for_tick();
        if (++ticks % TICKS_BETWEEN_LOOKS == 0)
            hotplug_answer();
    }
    put("guest: power button\n");
    power_off();
}
