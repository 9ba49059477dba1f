"""Names for addresses, of programs whose functions say where they lie."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from native_map.symbols.demangle import short
from native_map.symbols.elf import Elf
from native_map.symbols.elf_image import UNKNOWN, Image
from native_map.symbols.symbolizer import JIT, KERNEL, VDSO, Symbols
from tests.binaries import (
    LIBRARY,
    PID,
    build,
    compile_c,
    mappings_of,
    named,
    needs_gcc,
    nm,
    observe,
    run,
    samples_at,
)

KINDS = {
    "pie": ["-pie", "-fPIE"],
    "no-pie": ["-no-pie"],
    "static": ["-static"],
    "static-pie": ["-static-pie", "-fPIE"],
    "two-segments": ["-no-pie", "-DFAR", "-Wl,--section-start=.far=0x900000"],
    "one-segment": ["-pie", "-fPIE", "-Wl,-z,noseparate-code"],
}


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_a_program_with_symbols(tmp_path: Path, kind: str) -> None:
    program = build(tmp_path / "program", *KINDS[kind])
    mappings, at = observe(program)
    loads = [s for s in Elf.open(str(program)).segments if s.type == 1 and s.flags & 1]
    assert (len(loads) == 2) == (kind == "two-segments")
    frame = Symbols().resolve(mappings, samples_at(list(at.values())))
    names = dict(zip(at, frame["function"], strict=True))
    # The shorter of two global names for one place is the one that is shown.
    assert names == {name: name for name in at}
    assert set(frame["library"]) == {"program"}
    assert set(frame["path"]) == {str(program)}


@needs_gcc
@pytest.mark.parametrize("kind", KINDS)
def test_a_stripped_program_goes_by_where_functions_start(tmp_path: Path, kind: str) -> None:
    program = build(tmp_path / "program", *KINDS[kind])
    starts = nm(program)
    run("strip", program)
    mappings, at = observe(program)
    symbols = Symbols(debug_dirs=[])
    names = named(mappings, at, symbols)
    assert names.pop("in_assembly") == UNKNOWN  # no .cfi: nothing says where it starts
    assert names == {name: hex(starts[name]) for name in names}
    assert any("stripped" in note and note.startswith("3 samples") for note in symbols.notes)
    assert any(note.startswith("1 sample without a function") for note in symbols.notes)


@needs_gcc
def test_libraries_opened_at_run_time(tmp_path: Path) -> None:
    program = build(tmp_path / "program")
    library = compile_c(tmp_path / "plugin.so", LIBRARY, "-shared", "-fPIC")
    starts = nm(library)
    mappings, at = observe(program, library)
    assert named(mappings, at, Symbols())["inner"] == "inner"
    run("strip", library)  # leaves .dynsym: the exported function keeps its name
    mappings, at = observe(program, library)
    names = named(mappings, at, Symbols(debug_dirs=[]))
    assert names["exported"] == "exported"
    assert names["inner"] == hex(starts["inner"])


@needs_gcc
def test_calls_through_the_plt(tmp_path: Path) -> None:
    for options in (["-fcf-protection=none"], ["-fcf-protection=full"], ["-Wl,-z,now"]):
        program = build(tmp_path / "program", *options)
        text = run("objdump", "-d", program)
        entries = re.findall(r"^(\w+) <(\w+)@plt>:", text, re.MULTILINE)
        assert entries
        addresses = np.array([int(address, 16) for address, _ in entries], np.uint64)
        codes, names = Image(Elf.open(str(program))).resolve(addresses + np.uint64(2))
        assert [names[code] for code in codes] == [f"{name}@plt" for _, name in entries]


@needs_gcc
def test_cpp_names(tmp_path: Path) -> None:
    source = r"""
    #include <cstdio>
    #include <vector>
    #include <string>
    namespace space { namespace {
      template <class T> struct Thing {
        __attribute__((noinline)) T operator()(const std::vector<T>& v, int n) const {
          T s = 0; for (auto x : v) s += x * n; return s; }
      };
    } }
    template <class T> __attribute__((noinline)) T twice(T x) { return x + x; }
    int main(int c, char**) {
      space::Thing<double> t; std::vector<double> v(c, 1.0);
      auto f = &space::Thing<double>::operator(); void* p; __builtin_memcpy(&p, &f, sizeof p);
      std::printf("at thing %p\nat twice %p\n", (char*)p + 1, (char*)(void*)&twice<float> + 1);
      FILE* maps = fopen("/proc/self/maps", "r"); char line[4096];
      while (fgets(line, sizeof line, maps)) printf("map %s", line);
      return (int)t(v, c) + (int)twice<float>(c) < 0;
    }"""
    code, program = tmp_path / "p.cpp", tmp_path / "p"
    code.write_text(source)
    run("g++", "-O1", "-o", program, code)
    mappings, at = observe(program)
    names = named(mappings, at, Symbols())
    assert names["twice"] == "float twice<float>(float)"
    assert names["thing"].startswith("space::(anonymous namespace)::Thing<double>::operator()(")
    assert short(names["thing"]) == "space::(anonymous namespace)::Thing::operator()"
    assert short(names["twice"]) == "twice"


@needs_gcc
def test_of_two_mappings_the_one_of_the_time_counts(tmp_path: Path) -> None:
    first = compile_c(tmp_path / "first.so", LIBRARY, "-shared", "-fPIC")
    second = compile_c(
        tmp_path / "second.so", LIBRARY.replace("exported", "shipped"), "-shared", "-fPIC"
    )
    address = 0x7F0000000000 + nm(first)["exported"] + 1
    size = first.stat().st_size // 4096 * 4096 + 4096
    elf = Elf.open(str(first))
    text = next(s for s in elf.segments if s.type == 1 and s.flags & 1)
    assert nm(first)["exported"] == nm(second)["shipped"]

    def row(pid: int, path: Path, time_ns: int) -> tuple[object, ...]:
        start = 0x7F0000000000 + text.vaddr
        return pid, start, start + size, text.offset, time_ns, str(path), "", True

    columns = ["pid", "start", "end", "offset", "time_ns", "path", "build_id", "executable"]
    mappings = pd.DataFrame([row(1, first, 100), row(1, second, 200)], columns=columns)
    times = [50, 100, 199, 200, 900]
    samples = pd.concat([samples_at([address], 1, t) for t in times], ignore_index=True)
    symbols = Symbols()
    names = list(symbols.resolve(mappings, samples)["function"])
    assert names == ["exported"] * 3 + ["shipped"] * 2
    assert not any("overlap" in note for note in symbols.notes)
    # A child forked in between keeps what the parent had; the parent's later mapping is not its.
    forks = pd.DataFrame({"pid": [2, 3, 4], "ppid": [1, 1, 3], "time_ns": [150, 250, 400]})
    children = pd.concat([samples_at([address], p, 900) for p in (2, 3, 4)], ignore_index=True)
    names = list(Symbols().resolve(mappings, children, forks)["function"])
    assert names == ["exported", "shipped", "shipped"]
    # After an exec nothing is left of them.
    comms = pd.DataFrame({"pid": [2, 1], "time_ns": [300, 250], "exec": [True, True]})
    names = list(Symbols().resolve(mappings, children[:1], forks, comms)["function"])
    assert names == [UNKNOWN]
    names = list(Symbols().resolve(mappings, samples, forks, comms)["function"])
    assert names == ["exported"] * 3 + ["shipped", UNKNOWN]
    # The same from a table that says until when its rows hold.
    mappings["until_ns"] = [250, 250]
    names = list(Symbols().resolve(mappings, samples)["function"])
    assert names == ["exported"] * 3 + ["shipped", UNKNOWN]


def test_what_is_mapped_again_hides_what_came_between() -> None:
    rows = [(0x1000, 0x3000, 0, "/a", 10), (0x2000, 0x3000, 0, "/b", 20)]
    rows += [(0x1000, 0x3000, 0, "/a", 30), (0x8000, 0x9000, 0, "/c", 5)]
    rows += [(0x7000, 0x9000, 0, "/d", 5)]  # at the same time: the later row counts
    columns = ["start", "end", "offset", "path", "time_ns"]
    mappings = pd.DataFrame(rows, columns=columns).assign(pid=PID)
    places = [(0x2500, 15), (0x2500, 25), (0x2500, 35), (0x1500, 25), (0x8500, 6)]
    samples = pd.concat([samples_at([ip], time_ns=t) for ip, t in places], ignore_index=True)
    frame = Symbols(debug_dirs=[]).resolve(mappings, samples)
    assert list(frame["library"]) == ["a", "b", "a", "a", "d"]


def test_kernel_and_unmapped_and_guest_samples() -> None:
    mappings = mappings_of("")
    samples = samples_at([0xFFFFFFFF81000010, 0x1234, 0xFFFFFFFF81000010])
    samples["cpu_mode"] = np.array([1, 2, 4], np.int8)
    symbols = Symbols()
    frame = symbols.resolve(mappings, samples)
    assert list(frame["library"]) == [KERNEL, UNKNOWN, UNKNOWN]
    assert set(frame["function"]) == {UNKNOWN}
    assert len(symbols.notes) == 3


def test_the_kernel_of_another_boot_lends_no_names() -> None:
    try:
        text = Path("/proc/kallsyms").read_text()
    except OSError:
        pytest.skip("/proc/kallsyms cannot be read")
    start = re.search(r"^(\w+) [tT] _text$", text, re.MULTILINE)
    if not start or not int(start[1], 16):
        pytest.skip("the kernel hides its addresses from this user")
    name, address = re.findall(r"^(\w+) T (do_exit|schedule)$", text, re.MULTILINE)[0][::-1]
    samples = samples_at([int(address, 16) + 1])
    samples["cpu_mode"] = np.int8(1)
    mark = mappings_of("10-20 r-xp 0 0:0 0 [kernel.kallsyms]_text", pid=-1)
    mark["offset"] = np.array([int(start[1], 16)], np.uint64)
    assert list(Symbols(kernel=True).resolve(mark, samples)["function"]) == [name]
    mark["offset"] += np.uint64(4096)
    symbols = Symbols(kernel=True)
    assert list(symbols.resolve(mark, samples)["function"]) == [UNKNOWN]
    assert "another boot" in symbols.notes[0]


def test_vdso_has_names_only_for_the_same_kernel() -> None:
    from native_map.symbols.elf_files import own_vdso

    image = own_vdso()
    if image is None:
        pytest.skip("no vdso here")
    mappings = mappings_of("7f0000000000-7f0000002000 r-xp 0 0:0 0 [vdso]")
    table = image.elf.symbol_tables()[0]
    rows = [r for r in range(len(table.value)) if "clock_gettime" in table.text(r)]
    samples = samples_at([0x7F0000000000 + int(table.value[rows[0]]) + 1])
    assert list(Symbols().resolve(mappings, samples)["library"]) == [VDSO]
    assert list(Symbols().resolve(mappings, samples)["function"]) == [UNKNOWN]
    mappings["build_id"] = image.elf.build_id
    assert "clock_gettime" in Symbols().resolve(mappings, samples)["function"][0]


def test_perf_maps_of_a_process_and_its_parent(tmp_path: Path) -> None:
    (tmp_path / "perf-1.map").write_text(
        "1000 100 old\n2000 40 py::f:/a b/x.py\n1080 100 newer\nbroken\n5000 zz no\n"
    )
    (tmp_path / "perf-2.map").write_text("3000 10 child\n")
    mappings = pd.concat(
        [mappings_of("0-9000 rwxp 0 0:0 0 //anon", pid=p) for p in (1, 2, 3)], ignore_index=True
    )
    forks = pd.DataFrame({"pid": [2], "ppid": [1], "time_ns": [0]})
    places = [(1, 0x1010), (1, 0x1090), (1, 0x203F), (1, 0x2040), (2, 0x3001), (2, 0x2001)]
    places += [(3, 0x2001)]
    samples = pd.concat([samples_at([ip], pid) for pid, ip in places], ignore_index=True)
    symbols = Symbols(perf_maps=str(tmp_path))
    frame = symbols.resolve(mappings, samples, forks)
    assert set(frame["library"]) == {JIT}
    f = "py::f:/a b/x.py"
    assert list(frame["function"]) == ["old", "newer", f, UNKNOWN, "child", f, UNKNOWN]
    assert any("process 3" in note for note in symbols.notes)


def test_samples_keep_their_index_and_none_gives_none() -> None:
    samples = samples_at([1, 2, 3])
    samples.index = pd.Index([30, 10, 20])
    frame = Symbols().resolve(mappings_of(""), samples)
    assert list(frame.index) == [30, 10, 20]
    assert len(Symbols().resolve(mappings_of(""), samples[:0])) == 0


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("at::native::f<float>(at::Tensor const&, int) [clone .cold]", "at::native::f"),
        ("void at::(anonymous namespace)::g<a<b>>(int)", "at::(anonymous namespace)::g"),
        ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
        ("bool operator< <char>(a<char> const&, a<char> const&)", "operator<"),
        ("std::ostream& std::operator<< <x>(std::ostream&, char)", "std::operator<<"),
        ("foo::operator()(int) const", "foo::operator()"),
        ("foo::operator->() const", "foo::operator->"),
        ("foo::operator bool() const", "foo::operator bool"),
        ("operator new(unsigned long)", "operator new"),
        ("operator delete[](void*)", "operator delete[]"),
        ("f(int)::{lambda(float)#1}::operator()(float) const", "f::{lambda}::operator()"),
        ("non-virtual thunk to A::f()", "A::f"),
        ("f[abi:cxx11](int)", "f"),
        ("decltype ((x)()) call<int>(int&&)", "call"),
        ("jpeg_fill_bit_buffer.constprop.0", "jpeg_fill_bit_buffer"),
        ("decode.part.0.cold", "decode"),
        ("memcpy@plt", "memcpy@plt"),
        ("0x59f00", "0x59f00"),
        ("py::f:/a (b)/x.py", "py::f:/a (b)/x.py"),
        ("[unknown]", "[unknown]"),
    ],
)  # fmt: skip
def test_short_names(name: str, wanted: str) -> None:
    assert short(name) == wanted
