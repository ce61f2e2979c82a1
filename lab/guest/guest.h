/* The lab's guest: a multiboot kernel that says on its serial console which PCI functions it has and whether they work. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

#define REG(address) (*(volatile u32 *)(address))

static inline void out8(u16 port, u8 value) { __asm__ volatile("outb %0,%1" ::"a"(value), "Nd"(port) : "memory"); }
static inline void out16(u16 port, u16 value) { __asm__ volatile("outw %0,%1" ::"a"(value), "Nd"(port) : "memory"); }
static inline void out32(u16 port, u32 value) { __asm__ volatile("outl %0,%1" ::"a"(value), "Nd"(port) : "memory"); }
static inline u8 in8(u16 port) { u8 value; __asm__ volatile("inb %1,%0" : "=a"(value) : "Nd"(port) : "memory"); return value; }
static inline u16 in16(u16 port) { u16 value; __asm__ volatile("inw %1,%0" : "=a"(value) : "Nd"(port) : "memory"); return value; }
static inline u32 in32(u16 port) { u32 value; __asm__ volatile("inl %1,%0" : "=a"(value) : "Nd"(port) : "memory"); return value; }
static inline void memory_barrier(void) { __asm__ volatile("mfence" ::: "memory"); }

/* serial.c */
void serial_init(void);
void put(const char *text);
void put_hex(u32 value, int digits);
void put_padded(const volatile u8 *text, int length); /* blank-padded text of a device, without the padding */
void serial_drain(void);

/* pci.c: a function is bus << 8 | slot << 3 | function */
u32 pci_read(u32 function, u32 offset);
void pci_write(u32 function, u32 offset, u32 value);
void put_function(u32 function); /* 01:00.0 */
void pci_report(void);

/* devices.c: a line with what the device answers, and whether its DMA (if it does any) reached this guest's memory */
void probe_device(u32 function, u32 id, u32 class, u32 bar);

/* hotplug.c */
void hotplug_answer(void); /* lets go of the devices that the host wants back */

/* power.c */
void power_init(void);
int power_button_pressed(void);
void power_off(void) __attribute__((noreturn));
void wait_for_tick(void); /* some 55 ms asleep */
