"""Names for what perf recorded, against those that perf finds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from native_map.symbols.demangle import short
from native_map.symbols.elf_image import UNKNOWN, Image
from native_map.symbols.symbolizer import JIT, Symbols
from tests.binaries import LIBRARY, compile_c, needs_gcc, run


def perf_works(folder: Path) -> bool:
    if not shutil.which("perf"):
        return False
    command = ["perf", "record", "-qN", "-e", "cpu-clock", "-o", folder / "probe", "--", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0


WORK = """
import ctypes, os, sys, json, re, hashlib, zlib, random
for path in sys.argv[1:]: ctypes.CDLL(path).exported(3000)
pid = os.fork()
for i in range(60):
    json.loads(json.dumps(list(range(20000)))); re.findall(r"(\\w+) (\\d+)", "ab 12 " * 3000)
    zlib.compress(os.urandom(1000) * 300); hashlib.md5(b"x" * 3000000).hexdigest()
    sorted(random.random() for _ in range(9000))
if pid: os.wait()
"""


@needs_gcc
def test_same_functions_as_perf_script(tmp_path: Path) -> None:
    if not perf_works(tmp_path):
        pytest.skip("perf record -e cpu-clock does not work here")
    from native_map.recording import perf_data

    library = compile_c(tmp_path / "plugin.so", LIBRARY, "-shared", "-fPIC")
    data = tmp_path / "perf.data"
    run("perf", "record", "-qN", "-e", "cpu-clock:u", "-F", "1999", "-o", data, "--",
        sys.executable, "-c", WORK, library)  # fmt: skip
    recording = perf_data.read(data)
    samples = recording.samples
    frame = Symbols().resolve(recording.mappings, samples, recording.forks, recording.comms)
    text = run("perf", "script", "-i", data, "-F", "ip,sym,dso", "-G")
    lines = [re.match(r"\s*(\w+) (.*) \((.*)\)$", line) for line in text.splitlines()]
    theirs = [(int(m[1], 16), m[2].split("@@")[0], m[3]) for m in lines if m]
    ours = list(zip(samples["ip"].tolist(), frame["function"], frame["path"], strict=True))
    ours.sort()
    theirs.sort()
    assert [ip for ip, _, _ in ours] == [ip for ip, _, _ in theirs]
    assert len(ours) > 200
    images: dict[str, Image] = {}
    differing = []
    for (ip, function, path), (_, symbol, file) in zip(ours, theirs, strict=True):
        if symbol in (UNKNOWN, function) or short(function) == short(symbol):
            continue
        if path == file and path:
            image = images.setdefault(path, Symbols().files.find(path, "", "").image)
            names = aliases_at(image, recording.mappings, ip, path)
            if symbol in names and (function in names):
                continue
        differing.append((hex(ip), function, symbol, file))
    known = sum(symbol != UNKNOWN for _, symbol, _ in theirs)
    assert known > 100
    assert len(differing) <= known / 100, differing
    # What perf knows no name for, we do not invent one for. But not every perf reads the vDSO
    # without its cache of build IDs.
    for (_, function, _), (_, symbol, file) in zip(ours, theirs, strict=True):
        if symbol == UNKNOWN and "[vdso]" not in file:
            assert function == UNKNOWN or re.search(r"^0x|^\[plt\]$|@plt$", function), function


def aliases_at(image: Image, mappings: pd.DataFrame, ip: int, path: str) -> set[str]:
    ours = mappings[(mappings["path"] == path) & (mappings["start"] <= ip) & (mappings["end"] > ip)]
    start, offset = (int(ours[name].iloc[0]) for name in ("start", "offset"))
    address, _ = image.elf.addresses(np.array([ip - start + offset], np.uint64))
    return image.aliases(int(address[0]))


SPIN = """
import ctypes, mmap, os, sys
# mov ecx, 2000000; again: dec ecx; jnz again; ret
code = b"\\xb9" + (2000000).to_bytes(4, "little") + b"\\xff\\xc9\\x75\\xfc\\xc3"
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(code)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
with open(f"{sys.argv[1]}/perf-{os.getpid()}.map", "w") as file:
    file.write(f"{address:x} {len(code):x} spinning here\\n")
pid = os.fork()
for _ in range(100): ctypes.CFUNCTYPE(None)(address)()
if pid: os.wait()
"""


def test_generated_code_of_a_real_process_and_its_child(tmp_path: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("its machine code is x86-64")
    if not perf_works(tmp_path):
        pytest.skip("perf record -e cpu-clock does not work here")
    from native_map.recording import perf_data

    data = tmp_path / "perf.data"
    run("perf", "record", "-qN", "-e", "cpu-clock:u", "-F", "1999", "-o", data, "--",
        sys.executable, "-c", SPIN, tmp_path)  # fmt: skip
    recording = perf_data.read(data)
    symbols = Symbols(perf_maps=str(tmp_path))
    frame = symbols.resolve(recording.mappings, recording.samples, recording.forks)
    generated = recording.samples["pid"][frame["library"] == JIT]
    assert set(frame["function"][frame["library"] == JIT]) == {"spinning here"}
    assert generated.nunique() == 2
    assert len(generated) > 20
