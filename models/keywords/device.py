"""The exported spotter as a program: on this machine, or on a Cortex-M4 without an operating system in an emulator."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy as np
from tfbridge.aot import Compiled

from .words import NAMES

_INSTRUCTIONS_PER_TICK = 40  # of the emulated timer: an instruction takes 1 ns, a tick 40

_MAIN = r"""
#include <stdint.h>
#include "keywords.h"
#include "stream.h"

void write_text(const char *text);
uint32_t ticks(void);

static keywords_model model;
static char memory[KEYWORDS_MEMORY_BYTES];

static void write_number(uint32_t number) {
    char digits[12];
    int at = 11;
    digits[at] = 0;
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    write_text(digits + at);
}

/* Finds the words of the stream; prints frame and name of each, and what a step takes. */
int program(void) {
    uint32_t spent = 0;
    int leading = 0, frames = 0, is_quiet = 1;
    if (keywords_init(&model, memory), keywords_reset(&model) != 0) return 1;
    for (int frame = 0; frame < STREAM_FRAMES; frame++) {
        const float *scores;
        int best = 0;
        uint32_t start;
        for (int band = 0; band < STREAM_BANDS; band++) keywords_arg0(&model)[band] = stream[frame][band];
        start = ticks();
        if (keywords_run(&model) != 0) return 1;
        spent += ticks() - start;
        scores = keywords_result0(&model);
        for (int name = 1; name < NAMES; name++)
            if (scores[name] > scores[best]) best = name;
        frames = best == leading ? frames + 1 : 1;
        leading = best;
        if (frames >= 3) {
            if (leading && is_quiet) {
                write_text("word ");
                write_number((uint32_t)frame);
                write_text(" ");
                write_number((uint32_t)leading);
                write_text("\n");
            }
            is_quiet = !leading;
        }
    }
    write_text("ticks ");
    write_number(spent);
    write_text("\n");
    return 0;
}
"""

_HOST = r"""
#include <stdint.h>
#include <stdio.h>
int program(void);
void write_text(const char *text) { fputs(text, stdout); }
uint32_t ticks(void) { return 0; }
int main(void) { return program(); }
"""

# Semihosting writes and ends; the timer counts down 24 bits.
_CORTEX_M = r"""
#include <stddef.h>
#include <stdint.h>
int program(void);
extern char stack_top[];
typedef uint32_t __attribute__((may_alias)) word;

void *memcpy(void *to, const void *from, size_t bytes) {
    char *t = to;
    const char *f = from;
    if (((uintptr_t)t | (uintptr_t)f) % 4 == 0)
        for (; bytes >= 4; bytes -= 4, t += 4, f += 4) *(word *)t = *(const word *)f;
    while (bytes--) *t++ = *f++;
    return to;
}
void *memset(void *to, int value, size_t bytes) {
    char *t = to;
    if ((uintptr_t)t % 4 == 0)
        for (; bytes >= 4; bytes -= 4, t += 4) *(word *)t = 0x01010101u * (unsigned char)value;
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
void __aeabi_memcpy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy4(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy8(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memmove(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memclr(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr4(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr8(void *to, size_t bytes) { memset(to, 0, bytes); }

static void ask_host(uint32_t operation, const void *parameter) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = parameter;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
void write_text(const char *text) { ask_host(4, text); }
uint32_t ticks(void) { return 0xFFFFFF - *(volatile uint32_t *)0xE000E018; }

static void leave(int status) {
    uint32_t block[2] = {0x20026, (uint32_t)status};
    ask_host(0x20, block);
    for (;;) {}
}
void fault(void) { leave(111); }
void reset(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* floats */
    *(volatile uint32_t *)0xE000E014 = 0xFFFFFF;    /* the timer's period */
    *(volatile uint32_t *)0xE000E010 = 5;           /* on, with the processor's clock */
    __asm__ volatile("dsb\n isb" : : : "memory");
    leave(program());
}
__attribute__((section(".vectors"), used)) static void *const vectors[7] = {
    stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
"""
_LINKING = """
SECTIONS {
    . = 0;
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.constants*) }
    .ARM.exidx : { *(.ARM.exidx*) }
    . = 0x20000000;
    .data : { *(.data*) }
    .bss (NOLOAD) : { *(.bss*) *(COMMON) }
    stack_top = 0x20400000;
}
"""


@dataclasses.dataclass(frozen=True)
class Device:
    """Where the spotter runs: the target of the export, the files of the program, commands that link and run it."""

    title: str
    triple: str | None
    cpu: str
    start: str
    link: tuple[str, ...]
    run: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """A tool that is not installed."""
        return next((tool for tool in (*self.link[:1], *self.run[:1]) if shutil.which(tool) is None), None)


DEVICES = {
    "host": Device("this machine", None, "", _HOST, ("cc", "-O2", "-lm")),
    "cortex-m4": Device(
        "a Cortex-M4 in qemu-system-arm",
        "thumbv7em-none-eabihf",
        "cortex-m4",
        _CORTEX_M,
        (
            *("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-O2", "-nostdlib"),
            *(
                "-ffreestanding",
                "-fno-builtin",
                "-fno-tree-loop-distribute-patterns",
                "-T",
                "link.ld",
                "-Wl,-z,noexecstack",
            ),
        ),
        (
            *("qemu-system-arm", "-M", "mps2-an386", "-semihosting", "-nographic", "-monitor", "none"),
            *("-serial", "null", "-icount", "shift=0", "-kernel"),
        ),
    ),
}


@dataclasses.dataclass(frozen=True)
class Heard:
    """What the program found: (frame, number) of words. instructions: of a step; None where nothing counts them."""

    words: list[tuple[int, int]]
    instructions: float | None


def run(device: Device, compiled: Compiled, frames: np.ndarray, seconds: float = 300.0) -> Heard:
    """Links the export with the program and the frames, and runs it."""
    folder = compiled.object_file.parent
    rows = ",\n".join("{" + ", ".join(f"{value:.9e}f" for value in row.tolist()) + "}" for row in frames)
    sizes = f"#define STREAM_FRAMES {len(frames)}\n#define STREAM_BANDS {frames.shape[1]}\n#define NAMES {len(NAMES)}\n"
    files = {
        "stream.h": f"{sizes}static const float stream[STREAM_FRAMES][STREAM_BANDS] = {{\n{rows}\n}};\n",
        "program.c": _MAIN,
        "start.c": device.start,
        "link.ld": _LINKING,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    tool, *flags = device.link
    libraries = [flag for flag in flags if flag.startswith("-l")]
    options = [flag for flag in flags if not flag.startswith("-l")]
    command = [
        tool,
        *options,
        "program.c",
        "start.c",
        compiled.object_file.name,
        *libraries,
        "-o",
        "keywords.elf",
    ]
    subprocess.run(command, check=True, cwd=folder)
    done = subprocess.run(
        [*device.run, str(folder / "keywords.elf")],
        check=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
    # An emulator's semihosting writes to stderr.
    lines = [line.split() for line in (done.stdout or done.stderr).splitlines()]
    ticks = next(int(words[1]) for words in lines if words[0] == "ticks")
    heard = [(int(words[1]), int(words[2])) for words in lines if words[0] == "word"]
    return Heard(heard, ticks * _INSTRUCTIONS_PER_TICK / len(frames) if ticks else None)


def program_folder(folder: Path, device: str) -> Path:
    """Where the files of a device's program go."""
    return folder / device
