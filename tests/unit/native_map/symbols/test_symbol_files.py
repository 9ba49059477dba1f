"""Which file names are taken from: debug files, replaced and deleted files, other roots."""

import lzma
import os
import subprocess
from pathlib import Path

import pytest

from native_map.symbols.elf import Elf
from native_map.symbols.elf_image import UNKNOWN
from native_map.symbols.symbolizer import JIT, Symbols
from tests.binaries import build, compile_c, mappings_of, named, needs_gcc, observe, run, samples_at


@needs_gcc
@pytest.mark.parametrize(
    "place", ["beside", ".debug", "global", "build-id", "debuginfod", "inside"]
)
def test_separate_debug_files(tmp_path: Path, place: str) -> None:
    program = build(tmp_path / "program", "-Wl,--build-id=sha1")
    debug = tmp_path / "program.debug"
    run("objcopy", "--only-keep-debug", program, debug)
    run("strip", program)
    run("objcopy", f"--add-gnu-debuglink={debug}", program)
    build_id = Elf.open(str(program)).build_id
    assert len(build_id) == 40
    top = tmp_path / "debug"
    target = {
        "beside": debug,
        ".debug": tmp_path / ".debug" / "program.debug",
        "global": Path(f"{top}{tmp_path}") / "program.debug",
        "build-id": top / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug",
        "debuginfod": top / build_id / "debuginfo",
        "inside": tmp_path / "elsewhere",
    }[place]
    if place == "inside":  # as Fedora keeps them
        packed = tmp_path / "packed"
        packed.write_bytes(lzma.compress(debug.read_bytes()))
        run("objcopy", "--add-section", f".gnu_debugdata={packed}", program)
    target.parent.mkdir(parents=True, exist_ok=True)
    mappings, at = observe(program)
    debug.rename(target)
    names = named(mappings, at, Symbols(debug_dirs=[str(top)]))
    assert names == {name: name for name in at}


@needs_gcc
def test_a_debug_file_of_another_build_is_not_used(tmp_path: Path) -> None:
    program = build(tmp_path / "program", "-Wl,--build-id=none")
    debug = tmp_path / "program.debug"
    run("objcopy", "--only-keep-debug", program, debug)
    run("strip", program)
    run("objcopy", f"--add-gnu-debuglink={debug}", program)
    mappings, at = observe(program)
    assert named(mappings, at, Symbols(debug_dirs=[]))["hidden"] == "hidden"
    with debug.open("ab") as file:
        file.write(b"\0")
    assert named(mappings, at, Symbols(debug_dirs=[]))["hidden"].startswith("0x")


@needs_gcc
def test_a_replaced_file_lends_no_names(tmp_path: Path) -> None:
    program = build(tmp_path / "program", "-Wl,--build-id=sha1")
    mappings, at = observe(program)
    was = Elf.open(str(program)).build_id
    mappings.loc[mappings["path"] == str(program), "build_id"] = was
    assert named(mappings, at, Symbols())["main"] == "main"
    build(tmp_path / "program", "-Wl,--build-id=sha1", "-O2")
    symbols = Symbols(debug_dirs=[])
    frame = symbols.resolve(mappings, samples_at(list(at.values())))
    assert set(frame["function"]) == {UNKNOWN}
    assert set(frame["library"]) == {"program"}
    now = Elf.open(str(program)).build_id
    [note] = symbols.notes
    assert was in note
    assert now in note
    assert "4 samples" in note


@needs_gcc
def test_a_replaced_file_is_found_by_its_build_id(tmp_path: Path) -> None:
    program = build(tmp_path / "program", "-Wl,--build-id=sha1")
    mappings, at = observe(program)
    was = Elf.open(str(program)).build_id
    mappings.loc[mappings["path"] == str(program), "build_id"] = was
    kept = tmp_path / "cache" / was / "executable"
    kept.parent.mkdir(parents=True)
    program.rename(kept)
    names = named(mappings, at, Symbols(debug_dirs=[str(tmp_path / "cache")]))
    assert names == {name: name for name in at}


@needs_gcc
def test_a_newer_file_without_build_id_lends_no_names(tmp_path: Path) -> None:
    program = build(tmp_path / "program", "-Wl,--build-id=none")
    mappings, at = observe(program)
    changed = program.stat().st_ctime
    assert named(mappings, at, Symbols(recorded_s=changed + 1))["main"] == "main"
    assert named(mappings, at, Symbols(recorded_s=changed - 1))["main"] == UNKNOWN


@needs_gcc
def test_deleted_files(tmp_path: Path) -> None:
    program = build(tmp_path / "program", "-Wl,--build-id=sha1")
    mappings, at = observe(program)
    mine = mappings["path"] == str(program)
    mappings.loc[mine, "path"] = f"{program} (deleted)"
    symbols = Symbols(debug_dirs=[])
    frame = symbols.resolve(mappings, samples_at(list(at.values())))
    assert set(frame["function"]) == {UNKNOWN}  # what lies there now may be another
    assert set(frame["library"]) == {"program"}
    assert "deleted" in symbols.notes[0]
    mappings.loc[mine, "build_id"] = Elf.open(str(program)).build_id
    assert named(mappings, at, Symbols())["main"] == "main"


@needs_gcc
def test_files_under_another_root(tmp_path: Path) -> None:
    program = build(tmp_path / "program")
    mappings, at = observe(program)
    mappings.loc[mappings["path"] == str(program), "path"] = "/opt/app/program"
    assert named(mappings, at, Symbols())["main"] == UNKNOWN
    moved = tmp_path / "image" / "opt" / "app" / "program"
    moved.parent.mkdir(parents=True)
    program.rename(moved)
    assert named(mappings, at, Symbols(root=str(tmp_path / "image")))["main"] == "main"


@needs_gcc
def test_files_of_a_live_process_with_another_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    box = tmp_path / "box"
    (box / "opt").mkdir(parents=True)
    source = """
    #include <stdio.h>
    #include <unistd.h>
    int main(void) { printf("%p\\n", (void *)((char *)main + 3)); fflush(stdout); pause(); }
    """
    program = compile_c(box / "opt" / "waits", source, "-static", "-no-pie")
    process = subprocess.Popen(["chroot", box, "/opt/waits"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = int(process.stdout.readline() or "0", 16)
        if not address:
            pytest.skip("chroot does not work here")
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        mappings = mappings_of(maps.replace(str(program), "/opt/waits"), process.pid)
        frame = Symbols().resolve(mappings, samples_at([address], process.pid))
    finally:
        process.kill()
        process.wait()
    assert list(frame["function"]) == ["main"]
    assert list(frame["path"]) == ["/opt/waits"]


def test_paths_that_are_no_files_do_no_harm(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "\n".join(
        f"{start}-{end} r-xp 0 0:0 0 {path}"
        for start, end, path in [
            ("1000", "2000", pipe),
            ("2000", "3000", tmp_path),
            ("3000", "4000", "/nowhere/lib.so"),
            ("4000", "5000", "/memfd:code (deleted)"),
            ("5000", "6000", "[heap]"),
            ("6000", "7000", "/dev/null"),
        ]
    )
    mappings = mappings_of(text)
    frame = Symbols(debug_dirs=[]).resolve(mappings, samples_at([n * 4096 for n in range(1, 7)]))
    assert set(frame["function"]) == {UNKNOWN}
    assert list(frame["library"]) == [
        "pipe", tmp_path.name, "lib.so", "memfd:code", JIT, "null",
    ]  # fmt: skip
