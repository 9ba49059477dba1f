"""Small C and C++ programs for tests of symbols: compiled here, run once, their own addresses."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from native_map.symbols.symbolizer import Symbols

needs_gcc = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "g++", "nm", "objcopy", "strip", "readelf"))),
    reason="gcc, g++ and binutils are not all installed",
)

SOURCE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#ifdef FAR
#define PLACE __attribute__((noinline, section(".far")))
#else
#define PLACE __attribute__((noinline))
#endif
volatile int sink;
PLACE int visible(int x) { for (int i = 0; i < x; i++) sink += i * x; return sink; }
static __attribute__((noinline)) int hidden(int x) {
    for (int i = 0; i < x; i++) sink ^= i;
    return sink;
}
int alias_of_visible(int) __attribute__((alias("visible")));
static int (*resolve_chosen(void))(int) { return hidden; }
int chosen(int) __attribute__((ifunc("resolve_chosen")));
__asm__(".text\n.type in_assembly, @function\nin_assembly: nop\nnop\nnop\nret\n");
extern void in_assembly(void);
int main(int argc, char **argv) {
    printf("at visible %p\n", (void *)((char *)visible + 5));
    printf("at hidden %p\n", (void *)((char *)hidden + 5));
    printf("at main %p\n", (void *)((char *)main + 5));
    printf("at in_assembly %p\n", (void *)((char *)in_assembly + 2));
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        void *function = library ? dlsym(library, "exported") : 0;
        if (!function) return 1;
        printf("at exported %p\n", (void *)((char *)function + 5));
        printf("at inner %p\n", ((void *(*)(void))dlsym(library, "where_inner"))());
    }
    sink += visible(argc) + hidden(argc) + chosen(argc) + (int)strlen(argv[0]);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (fgets(line, sizeof line, maps)) printf("map %s", line);
    return 0;
}
"""

LIBRARY = r"""
volatile int total;
static __attribute__((noinline)) int inner(int x) {
    for (int i = 0; i < x; i++) total -= i;
    return total;
}
int exported(int x) { for (int i = 0; i < x; i++) total += inner(i); return total; }
void *where_inner(void) { return (char *)inner + 3; }
"""

PID = 4711
MAP_LINE = re.compile(r"^(\w+)-(\w+) (\S+) (\w+) \S+ \d+\s*(.*)$")


def run(*command: "str | Path") -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command} failed: {done.stderr or done.stdout}")
    return done.stdout


def compile_c(path: Path, source: str, *options: str) -> Path:
    """The program or library built from `source`."""
    code = path.with_suffix(".c")
    code.write_text(source)
    run("gcc", "-O1", "-g0", "-o", path, code, *options)
    return path


def build(path: Path, *options: str) -> Path:
    """The usual program, or the test is skipped where gcc cannot build it so."""
    try:
        return compile_c(path, SOURCE, *options)
    except RuntimeError as error:
        pytest.skip(f"gcc cannot build it here: {error}")


def mappings_of(text: str, pid: int = PID) -> pd.DataFrame:
    """The executable mappings in the lines of a /proc/PID/maps, as a Recording has them."""
    rows = []
    for line in text.splitlines():
        match = MAP_LINE.match(line)
        if match and "x" in match[3]:
            numbers = (int(match[i], 16) for i in (1, 2, 4))
            rows.append((pid, *numbers, 0, match[5], "", True))
    columns = ["pid", "start", "end", "offset", "time_ns", "path", "build_id", "executable"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"start": np.uint64, "end": np.uint64, "offset": np.uint64})


def samples_at(addresses: "list[int]", pid: int = PID, time_ns: int = 1000) -> pd.DataFrame:
    """User-space samples at those addresses."""
    count = len(addresses)
    return pd.DataFrame(
        {
            "time_ns": np.full(count, time_ns, np.int64),
            "pid": np.full(count, pid, np.int32),
            "tid": np.full(count, pid, np.int32),
            "event": np.zeros(count, np.int16),
            "ip": np.array(addresses, np.uint64),
            "period": np.ones(count, np.uint64),
            "cpu_mode": np.full(count, 2, np.int8),
        }
    )


def observe(program: Path, *arguments: "str | Path") -> tuple[pd.DataFrame, dict[str, int]]:
    """Run it: its mappings, and an address inside each function that it names."""
    text = run(program, *arguments)
    at = dict(re.findall(r"^at (\w+) (0x\w+)$", text, re.MULTILINE))
    maps = "\n".join(line[4:] for line in text.splitlines() if line.startswith("map "))
    return mappings_of(maps), {name: int(address, 16) for name, address in at.items()}


def nm(path: Path, *options: str) -> dict[str, int]:
    """Function symbols and their addresses in the file, by nm."""
    symbols = re.findall(r"^(\w+) [tTwWi] (\S+)$", run("nm", *options, path), re.MULTILINE)
    return {name.split("@")[0]: int(address, 16) for address, name in symbols}


def named(mappings: pd.DataFrame, addresses: dict[str, int], symbols: Symbols) -> dict[str, str]:
    """The function that `symbols` names at each address."""
    frame = symbols.resolve(mappings, samples_at(list(addresses.values())))
    return dict(zip(addresses, frame["function"].astype(str), strict=True))
