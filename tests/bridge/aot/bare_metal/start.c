/* Starts `test_main` where there is neither an operating system nor a C library, and ends with what it returns. */
#include <stddef.h>
#include <stdint.h>

int test_main(void);

/* No calls of themselves: -fno-builtin. */
void *memcpy(void *to, const void *from, size_t bytes) {
    char *t = to;
    const char *f = from;
    while (bytes--) *t++ = *f++;
    return to;
}

void *memset(void *to, int value, size_t bytes) {
    char *t = to;
    while (bytes--) *t++ = (char)value;
    return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
    char *t = to;
    const char *f = from;
    if (t < f) return memcpy(to, from, bytes);
    while (bytes--) t[bytes] = f[bytes];
    return to;
}

#if defined __arm__ /* the names of Arm's ABI */
void __aeabi_memcpy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy4(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy8(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memmove(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memmove4(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memset(void *to, size_t bytes, int value) { memset(to, value, bytes); }
void __aeabi_memclr(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr4(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr8(void *to, size_t bytes) { memset(to, 0, bytes); }
#endif

/* A processor without floats calls the C library's. */
double sqrt(double x) {
    double root = x < 1 ? 1 : x, before;
    if (!(x > 0) || x * 0 != 0) return x < 0 ? (x - x) / (x - x) : x;
    do {
        before = root;
        root = (root + x / root) / 2;
    } while (root < before);
    return before;
}

float sqrtf(float x) { return (float)sqrt(x); }

#if defined __arm__
extern char stack_top[];

/* Semihosting's SYS_EXIT_EXTENDED. */
static void leave(int status) {
    uint32_t block[2] = {0x20026, (uint32_t)status};
    register uint32_t operation __asm__("r0") = 0x20;
    register uint32_t *parameter __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : : "r"(operation), "r"(parameter) : "memory");
    for (;;) {}
}

void fault(void) { leave(111); }

void reset(void) {
#if !defined __ARM_ARCH_6M__
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* coprocessors 10 and 11: floats and vectors */
    __asm__ volatile("dsb\n isb" : : : "memory");
#endif
    leave(test_main());
}

struct vectors {
    char *stack;
    void (*handlers[6])(void);
};

__attribute__((section(".vectors"), used)) static const struct vectors vectors = {
    stack_top, {reset, fault, fault, fault, fault, fault},
};
#elif defined __riscv
__attribute__((noreturn)) void _start(void) {
    __asm__ volatile(".option push\n .option norelax\n la gp, __global_pointer$\n .option pop");
    register long status __asm__("a0") = test_main();
    register long call __asm__("a7") = 93; /* Linux: exit */
    __asm__ volatile("ecall" : : "r"(status), "r"(call));
    for (;;) {}
}
#endif
