#include "guest.h"

#define COM1 0x3f8
#define LINE_STATUS (COM1 + 5)

void serial_init(void)
{
    out8(COM1 + 1, 0);    /* no interrupts */
    out8(COM1 + 3, 0x80); /* the next two are the divisor */
    out8(COM1, 1);
    out8(COM1 + 1, 0);
    out8(COM1 + 3, 3); /* 8N1 */
    out8(COM1 + 2, 7); /* FIFO on and empty */
}

static void put_char(char character)
{
    while (!(in8(LINE_STATUS) & 0x20))
        ;
    out8(COM1, character);
}

void put(const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            put_char('\r');
        put_char(*text);
    }
}

void put_hex(u32 value, int digits)
{
    while (digits--)
        put_char("0123456789abcdef"[(value >> (4 * digits)) & 15]);
}

void put_padded(const volatile u8 *text, int length)
{
    while (length && (text[length - 1] == ' ' || !text[length - 1]))
        length--;
    for (int i = 0; i < length; i++)
        put_char(text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?');
}

void serial_drain(void)
{
    while (!(in8(LINE_STATUS) & 0x40))
        ;
}
