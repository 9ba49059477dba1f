"""Exports of VTune, uProf and perf report become tables of functions. The texts are synthetic, in
the formats of real ones; `tests/profiles/perf_*` were recorded by perf 6.1 with cpu-clock."""

import math
import os
from pathlib import Path

import pandas as pd
import pytest

from native_map.errors import UnusableError
from native_map.paper import function_counts as profile_module
from native_map.paper import perf_report
from native_map.paper.function_counts import decimal_mark, gathered, module_of, number, resolved
from native_map.paper.importers import Profile, load, loads
from native_map.recording import perf_data

PROFILES = Path(__file__).parents[3] / "profiles"

HOTSPOTS = """\
Function,CPU Time,CPU Time:Effective Time,CPU Time:Spin Time,Module,Function (Full),Source File,Start Address
resize_rows,2.500000,2.500000,0.0,libpixels.so.3,resize_rows,[Unknown],0x2b2f0
"loop<int, float>::run",0.250000,0.200000,0.050000,/opt/lib/libpixels.so.3,"loop<int, float>::run(int, float)",[Unknown],0x100
[Outside any known module],0.008009,0.0,0.0,[Unknown],[Outside any known module],[Unknown],0
"""  # noqa: E501

UARCH = """\
Source Function / Function / Call Stack\tCPU Time\tClockticks\tInstructions Retired\tCPI Rate\tRetiring\tFront-End Bound\tBad Speculation\tL1 Bound\tAverage CPU Frequency\tModule\tFunction (Full)\tSource File\tStart Address
resize_rows\t1868.632s\t6,275,872,000,000\t11,027,520,000,000\t0.569\t41.5%\t8.5%\t42.7%\t17.6%\t3.4 GHz\t[Unknown]\tresize_rows\t[Unknown]\t0
spin\t0.010s\t33,600,000\t0\t\t80.0%\t30.0%\t5.0%\t1.0%\t661.6 MHz\t[Unknown]\tspin\t[Unknown]\t0
"""  # noqa: E501

UPROF = """\

"AMD uProf (Version:4.0.341.0)"
PERFORMANCE ANALYSIS REPORT

EXECUTION
Target Path:,"/opt/bin/python"
CPU Details:,"Family(0x19), Model(0x1), Number of Cores(128)"

MONITORED EVENTS
TBP Events:,Name,Interval,Description
,"CPU_TIME","1.000 milliseconds","CPU Time is the time in which the CPU core is executing."

"100 HOTTEST FUNCTIONS (Sort Event - CPU_TIME)"
FUNCTION,"CPU_TIME",Module
"void loop<int, float>::run(int, float)",3824.0000,"/opt/lib/libpixels.so.3"
"libgomp-a34b3233.so.1!0x00018c88",880.0000,"/opt/torch/lib/libgomp-a34b3233.so.1"

"100 HOTTEST PROCESSES (Sort Event - CPU_TIME)"
PROCESS,"CPU_TIME"
"main (PID:31)",4700.0000
"other (PID:32)",30.0000

"100 HOTTEST MODULES (Sort Event - CPU_TIME)"
MODULE,"CPU_TIME"
"/opt/lib/libpixels.so.3",3824.0000
"""


def row(profile: Profile, function: str) -> dict[str, object]:
    chosen = profile.functions[profile.functions["function"] == function]
    assert len(chosen) == 1, profile.functions["function"].tolist()
    return dict(chosen.iloc[0])


def test_vtune_hotspots():
    profile = loads(HOTSPOTS)
    assert profile.kind == "vtune-hotspots"
    assert len(profile.functions) == 3
    resize = row(profile, "resize_rows")
    assert (resize["module"], resize["cpu_ns"]) == ("libpixels.so.3", 2.5e9)
    loop = row(profile, "loop<int, float>::run")
    assert (loop["module"], loop["cpu_time_spin_time_ns"]) == ("libpixels.so.3", 5e7)
    assert row(profile, "[unknown]")["module"] == ""
    assert profile.totals["cpu_ns"] == pytest.approx(2.758009e9)


def test_vtune_micro_architecture():
    profile = loads(UARCH)
    assert profile.kind == "vtune-uarch"
    assert profile.weight == "cycles"
    resize = row(profile, "resize_rows")
    assert resize["module"] == ""
    assert resize["cpu_ns"] == pytest.approx(1868.632e9)
    assert resize["cycles"] == 6_275_872_000_000
    assert resize["instructions"] == 11_027_520_000_000
    assert resize["retiring"] == pytest.approx(0.415)
    assert resize["l1_bound"] == pytest.approx(0.176)
    assert resize["frequency_hz"] == pytest.approx(3.4e9)
    assert row(profile, "spin")["frequency_hz"] == pytest.approx(661.6e6)
    assert "cpi" not in profile.functions  # cycles / instructions


def test_back_end_is_the_rest_and_never_shown_below_zero():
    profile = loads(UARCH)
    assert row(profile, "resize_rows")["backend_bound"] == pytest.approx(1 - 0.415 - 0.085 - 0.427)
    # 80 % + 30 % + 5 %: what the export says does not fit, and that is told.
    assert row(profile, "spin")["backend_bound"] == pytest.approx(-0.15)
    assert any("of 1 of 2 functions is not resolved" in note for note in profile.notes)
    shown = resolved(profile.functions, profile.means)
    assert shown["backend_bound"].isna().tolist() == [False, True]
    assert shown["frequency_hz"].equals(profile.functions["frequency_hz"])
    # 41.5 % + 8.5 % + 50.6 %: off by less than errors of counting are.
    profile = loads(UARCH.replace("42.7%", "50.6%"))
    assert resolved(profile.functions, profile.means)["backend_bound"][0] == 0
    assert any("backend bound of 1 of 2 functions is 0 ±0.6%" in note for note in profile.notes)


def test_a_share_below_zero_in_the_export_itself_is_not_shown():
    profile = loads(UARCH.replace("L1 Bound", "Back-End Bound").replace("17.6%", "-0.6%"))
    assert resolved(profile.functions, profile.means)["backend_bound"][0] == 0
    assert any("is 0 ±0.6%" in note for note in profile.notes)


def test_a_total_below_its_own_functions_leaves_nothing_below_zero_over():
    rows = pd.DataFrame({"module": "m", "function": ["f", "g"], "cycles": [60.0, 50.0]})
    notes = []
    profile = gathered("vtune", rows, (), notes, "x.csv", {"cycles": 100.0})
    assert profile.totals == {"cycles": 110.0}
    assert "total of cycles (100) is less than its functions have (110)" in profile.notes[0]


def test_back_end_of_the_export_is_taken():
    text = UARCH.replace("L1 Bound", "Back-End Bound")
    profile = loads(text)
    assert row(profile, "resize_rows")["backend_bound"] == pytest.approx(0.176)
    assert not profile.notes


@pytest.mark.parametrize(
    ("delimiter", "seconds", "share", "count"),
    [
        (",", "1868.632s", "41.5%", "6275872000000"),
        (";", "1868,632s", "41,5%", "6.275.872.000.000"),
        (";", "1.868,632s", "41,5 %", "6 275 872 000 000"),
        ("\t", "1,868.632s", "41.5%", "6\u202f275\u202f872\u202f000\u202f000"),
        ("\t", "1868.632", "0.415", "6'275'872'000'000"),
        ("|", "1868632 ms", "41.5", "6.275872e12"),
    ],
)
def test_locales_and_units(delimiter, seconds, share, count):
    lines = [
        ["Function", "CPU Time", "Retiring", "Front-End Bound", "Clockticks", "Module"],
        ["resize_rows", seconds, share, share, count, "C:\\lib\\pixels.dll"],
    ]
    profile = loads("\n".join(delimiter.join(line) for line in lines) + "\n")
    function = row(profile, "resize_rows")
    assert function["module"] == "pixels.dll"
    assert function["cpu_ns"] == pytest.approx(1868.632e9)
    assert function["retiring"] == pytest.approx(0.415)
    assert function["cycles"] == pytest.approx(6_275_872_000_000)


def test_percent_in_the_title():
    text = "Function\tCPU Time\tRetiring(%)\tFront-End Bound(%)\nf\t1.0\t0.5\t99.5\n"
    assert row(loads(text), "f")["retiring"] == pytest.approx(0.005)


def test_a_percent_sign_counts_once():
    text = "Function\tCPU Time\tRetiring(%)\tFront-End Bound\nf\t1.0\t50%\t150%\n"
    function = row(loads(text), "f")
    assert (function["retiring"], function["frontend_bound"]) == (0.5, 1.5)


def test_a_share_of_the_time_is_no_time():
    profile = loads("Function,CPU Time,Clockticks\nf,25%,5\n")
    assert (profile.additive, profile.means) == (("cycles",), ("cpu_ns_share",))
    # With shares alone there is nothing to split among operations.
    with pytest.raises(UnusableError, match="no function with a number"):
        loads(UPROF.replace("3824.0000", "80%").replace("880.0000", "20%"))
    both = UPROF.replace('"CPU_TIME",Module', '"CPU_TIME","CPU_TIME (%)",Module')
    both = both.replace("3824.0000,", "3824.0000,81.25,").replace("880.0000,", "880.0000,18.75,")
    profile = loads(both)
    assert profile.means == ("cpu_time_share",)
    assert row(profile, "0x00018c88")["cpu_time_share"] == 0.1875


def test_uprof_events_are_taken_as_stated_and_that_is_told():
    profile = loads(UPROF.replace("CPU_TIME", "RETIRED_INST"))
    assert profile.totals == {"instructions": 4730}
    assert any("RETIRED_INST" in note and "samples" in note for note in profile.notes)


def test_impossible_numbers_are_left_out_and_told():
    profile = loads("Function,CPU Time,Clockticks\nf,-1,1e300\ng,1,5\n")
    assert profile.totals == {"cpu_ns": 1e9, "cycles": 5}
    assert profile.notes == ("2 impossible numbers are left out",)


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        (["1,234,567"], "."),
        (["1.234.567"], ","),
        (["1868,632"], ","),
        (["0,125"], ","),
        (["1.234,5", "7"], ","),
        (["12,5 %", "1,234"], ","),
        (["1,234"], "."),
        (["none", ""], "."),
    ],
)
def test_decimal_mark(cells, mark):
    assert decimal_mark(cells) == mark


def test_two_locales_in_one_file_are_refused():
    with pytest.raises(UnusableError, match=r"two ways .*41\.5%.*41,5%"):
        decimal_mark(["41.5%", "41,5%"])


@pytest.mark.parametrize("text", ["12 apples", "1,23,456", "0x10", "1e999", "--1", "9" * 100])
def test_damaged_numbers_are_told_apart_from_absent_ones(text):
    value, unit = number(text)
    assert math.isnan(value)
    assert unit == "damaged"
    value, unit = number("")
    assert math.isnan(value)
    assert unit == ""


def test_damaged_lines_and_cells_are_counted():
    profile = loads(UARCH + "torn\t1.0s\nlast\tmany\t1\t1\t1\t1%\t1%\t1%\t1%\t1 GHz\t\t\t\t\n")
    assert len(profile.functions) == 3
    assert "1 lines with missing or extra cells are left out" in profile.notes
    assert "1 cells are not numbers and were left out" in profile.notes
    assert math.isnan(row(profile, "last")["cpu_ns"])
    assert profile.totals["cycles"] == 6_275_872_000_000 + 33_600_000 + 1


def test_call_stacks_are_not_counted_twice():
    profile = loads(HOTSPOTS + "resize_rows,1,1,0,libpixels.so.3,f,,0\n  caller,1,1,0,m,f,,0\n")
    assert row(profile, "resize_rows")["cpu_ns"] == 3.5e9
    assert "caller" not in set(profile.functions["function"].str.strip())
    assert "1 rows of call stacks are counted in their functions" in profile.notes


def test_functions_of_one_name_are_summed_and_their_shares_weighted():
    text = "Function\tCPU Time\tClockticks\tRetiring\tFront-End Bound\tModule\n"
    text += "f\t1\t100\t10%\t1%\tm\nf\t1\t300\t50%\t1%\tm\nf\t1\t0\t99%\t1%\tm\n"
    function = row(loads(text), "f")
    assert function["cycles"] == 400
    assert function["retiring"] == pytest.approx(0.4)


def test_uprof():
    profile = loads(UPROF)
    assert profile.kind == "uprof"
    loop = row(profile, "void loop<int, float>::run(int, float)")
    assert (loop["module"], loop["samples"], loop["cpu_ns"]) == ("libpixels.so.3", 3824, 3.824e9)
    assert row(profile, "0x00018c88")["module"] == "libgomp-a34b3233.so.1"
    # The list ends at a hundred functions; the processes tell the whole.
    assert profile.totals == {"samples": 4730, "cpu_ns": 4.73e9}


def test_uprof_interval():
    profile = loads(UPROF.replace("1.000 milliseconds", "250.0 microseconds"))
    assert profile.totals["cpu_ns"] == 4730 * 250e3
    profile = loads(UPROF.replace("1.000 milliseconds", ""))
    assert profile.totals["cpu_ns"] == 4.73e9
    assert "the report states no sampling interval: 1 ms is assumed" in profile.notes


def test_uprof_time_with_a_unit_is_no_number_of_samples():
    profile = loads(UPROF.replace('"CPU_TIME"', '"CPU_TIME (ms)"'))
    assert profile.additive == ("cpu_ns",)
    assert profile.totals["cpu_ns"] == 4.73e9
    profile = loads(UPROF.replace('"CPU_TIME"', '"CPU_TIME (s)"'))
    assert profile.totals["cpu_ns"] == 4730e9


def test_a_second_table_of_functions_is_not_added():
    table = UPROF[UPROF.index("FUNCTION,") : UPROF.index('"100 HOTTEST PROCESSES')]
    profile = loads(UPROF + "\n" + table)
    assert row(profile, "0x00018c88")["samples"] == 880


BLEND = "image::blend<float, long>"


@pytest.mark.parametrize("name", ["perf_columns.txt", "perf_period.csv"])
def test_perf_report(name):
    profile = load(PROFILES / name)
    assert profile.kind == "perf-report"
    blend = row(profile, BLEND)  # 80 samples in one process, 79 in the other
    assert blend["module"] == "decode"
    assert blend["cpu_ns"] == 159 * 2_004_008
    assert blend["cpu_ns_samples"] == 159
    assert row(profile, "clear_page_erms")["module"] == "[kernel]"
    faults = row(profile, "__memset_avx512_unaligned_erms")
    assert faults["page_faults"] == pytest.approx(12_124 + 4_589, abs=2)
    assert profile.totals["cpu_ns"] == 484_969_936
    assert profile.functions["cpu_ns"].sum() == 484_969_936
    assert profile.totals["page_faults"] == 16_934


def test_perf_report_without_samples_is_rounded_and_says_so():
    profile = load(PROFILES / "perf_plain.txt")
    exact = row(load(PROFILES / "perf_period.csv"), BLEND)["cpu_ns"]
    assert row(profile, BLEND)["cpu_ns"] == pytest.approx(exact, rel=1e-3)
    assert row(profile, BLEND)["cpu_ns"] != exact
    assert any("--show-total-period" in note for note in profile.notes)


def test_perf_report_with_call_graphs_takes_self():
    profile = load(PROFILES / "perf_callgraph.txt")
    assert row(profile, BLEND)["samples"] == 159
    # 2.10 % with its callees, 0.42 % itself
    assert row(profile, "__memset_avx512_unaligned_erms")["samples"] == 1
    # --percent-limit hides functions, but not that they are there.
    assert profile.functions["samples"].sum() < profile.totals["samples"] == 238


def test_perf_report_of_a_group_is_refused_with_the_command():
    with pytest.raises(UnusableError, match="--no-group"):
        load(PROFILES / "perf_group.txt")


@pytest.mark.parametrize(
    ("event", "metric"),
    [
        ("cycles:u", "cycles"),
        ("cpu_core/cycles/u", "cycles"),
        ("instructions:upp", "instructions"),
        ("task-clock:u", "cpu_ns"),
        ("cpu/event=0x1a0,umask=0x01/u", "cpu_event_0x1a0_umask_0x01_u"),
        ("L1-dcache-load-misses", "l1_dcache_load_misses"),
        ("syscalls:sys_enter_read", "syscalls_sys_enter_read"),
    ],
)
def test_perf_events_become_metrics(event, metric):
    text = f"# Samples: 1K of event '{event}'\n# Event count (approx.): 4000\n#\n"
    text += "# Overhead  Shared Object  Symbol\n# ........  .............  ......\n#\n"
    text += "    25.00%  libc.so.6      [.] memmove\n"
    profile = loads(text)
    assert profile.additive == (metric,)
    assert row(profile, "memmove")[metric] == 1000
    assert profile.totals == {metric: 4000}


def test_perf_lost_samples_are_told():
    text = (PROFILES / "perf_columns.txt").read_text()
    profile = loads(text.replace("Total Lost Samples: 0", "Total Lost Samples: 17"))
    assert "17 samples were lost in recording: true counts are higher" in profile.notes


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("/usr/lib/libc-2.31.so", "libc-2.31.so"),
        ("[Unknown]", ""),
        ("", ""),
        ("[kernel.kallsyms]", "[kernel]"),
        ("vmlinux", "[kernel]"),
        ("[vdso]", "[vdso]"),
        ("evil\x1b[2J.so", "evil?[2J.so"),
    ],
)
def test_modules(text, module):
    assert module_of(text) == module


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b"PERFILE2" + bytes(90), "perf report --stdio"),
        (b"\x7fELF\0\0\0", "binary"),
        (b"hello\n", "none of"),
        (b"Module,CPU Time,Function\nm,1,f\n", "-group-by function"),
        (b"Task \x1b / Function,CPU Time\n", r"'Task \? / Function'.*-group-by function"),
        (b"Function,CPU Time\n", "no function"),
        (b"# Samples: 0 of event 'cycles'\n", "no samples"),
        (b'"AMD uProf"\n', "hottest functions"),
    ],
)
def test_what_is_no_profile_gets_one_line(tmp_path, content, match):
    path = tmp_path / "profile.csv"
    path.write_bytes(content)
    with pytest.raises(UnusableError, match=match) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(UnusableError, match="cannot be read"):
        load(tmp_path / "nothing.csv")
    with pytest.raises(UnusableError, match="cannot be read"):
        load(tmp_path)


def test_a_file_of_a_terabyte_of_nothing_is_refused(tmp_path):
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", 1 << 40)
    with pytest.raises(UnusableError, match="larger than"):
        load(tmp_path / "hole")
    with pytest.raises(UnusableError, match="not a plain file"):
        load("/dev/zero")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("Function,CPU Time\n" + "f,1\n" * 2_000, "cells"),
        ("Function,CPU Time\n" + "," * 2_000_000, "line of over"),
        ("Function,CPU Time" + ",x" * 600 + "\n", "602 columns"),
        ('Function,CPU Time\n"' + "x" * 300_000, "damaged CSV"),
        ("# Samples: 1 of event 'a'\n" * 201, "200 events"),
        (
            "# Samples: 1 of event 'a'\n# Overhead,Symbol\n" + "1.00%,[.] f\n" * 2_000,
            "too many rows",
        ),
    ],
)
def test_memory_is_bounded(monkeypatch, text, match):
    for module in (profile_module, perf_report):
        monkeypatch.setattr(module, "MAX_CELLS", 3_000)
    with pytest.raises(UnusableError, match=match):
        loads(text)


def test_titles_that_a_mapping_uses_itself_are_renamed():
    profile = loads("Function,CPU Time,Weight,Row,Samples,samples\nf,1,2,3,4,5\n")
    assert profile.additive == ("cpu_ns", "weight_stated", "row_stated", "samples", "samples_2")


def test_utf_16_and_byte_order_marks(tmp_path):
    for encoding in ("utf-16", "utf-8-sig"):
        path = tmp_path / encoding
        path.write_text(UARCH, encoding=encoding)
        assert load(path).kind == "vtune-uarch"


@pytest.mark.parametrize("read", [load, perf_data.read])
def test_a_pipe_is_refused_without_waiting(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"x\n")  # what a reader that waits would take
    with pytest.raises(UnusableError, match="not a plain file"):
        read(tmp_path / "pipe")
    os.close(writer)
