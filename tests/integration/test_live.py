"""Live sampling through the kernel's Python binding, against `perf record` on the same run."""

import gc
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from native_map.errors import Unusable
from native_map.recording import live_samples
from native_map.recording.live_samples import LiveSampler

try:
    live_samples.binding()
    MISSING = ""
except Unusable as error:
    MISSING = str(error)
needs_binding = pytest.mark.skipif(bool(MISSING), reason=MISSING)
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")

# Three functions whose work is as 3 to 1 to 0; a child that runs the third; a known switch.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>
volatile unsigned long sink;
#define WORK(name) __attribute__((noinline)) void name(long n) \\
    { for (long i = 0; i < n; i++) sink = sink * 3 + i; }
WORK(heavy) WORK(light) WORK(child_work)
static long long now(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
int main(int argc, char **argv) {
    getchar();
    if (fork() == 0) { for (int i = 0; i < 300; i++) child_work(1000000); _exit(0); }
    for (int i = 0; i < 200; i++) { heavy(3000000); light(1000000); }
    wait(0);
    printf("%lld\\n", now()); fflush(stdout);
    heavy(300000000);
    printf("%lld\\n", now()); fflush(stdout);
    light(300000000);
    printf("%lld\\n", now()); fflush(stdout);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(PROGRAM)
    path = folder / "program"
    # At fixed addresses, so that an address is a function without any library of ours.
    command = ["gcc", "-O1", "-no-pie", "-o", str(path), str(folder / "program.c")]
    subprocess.run(command, check=True)
    return path


def functions(path: Path) -> dict[str, range]:
    out = subprocess.run(["nm", "-S", str(path)], check=True, capture_output=True, text=True)
    addresses = {}
    for line in out.stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "tT":
            start = int(words[0], 16)
            addresses[words[3]] = range(start, start + int(words[1], 16))
    return addresses


def named(samples: pd.DataFrame, path: Path) -> pd.Series:
    names = pd.Series("other", index=samples.index)
    for name, addresses in functions(path).items():
        inside = samples["ip"].between(addresses.start, addresses.stop - 1)
        names[inside] = name
    return names


def sampled(
    program: Path, beside: list[str] | None = None
) -> tuple[LiveSampler, pd.DataFrame, list[int]]:
    """Run the program with live sampling, and another recorder of it beside; {pid} is its own."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    recorder = None
    if beside:
        # It says itself when it samples.
        (commands, ask), (replies, tell) = os.pipe(), os.pipe()
        command = [word.replace("{pid}", str(process.pid)) for word in beside]
        command += ["--delay=-1", f"--control=fd:{commands},{tell}"]
        recorder = subprocess.Popen(command, pass_fds=(commands, tell))
        os.close(tell)
        os.write(ask, b"enable\n")
        assert os.read(replies, 16).startswith(b"ack\n")
    parts = []
    with LiveSampler(process.pid, frequency=997) as sampler:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        while process.poll() is None:
            time.sleep(0.05)
            parts.append(sampler.read())
        parts.append(sampler.read())
    if recorder is not None:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
        for descriptor in (commands, ask, replies):
            os.close(descriptor)
    assert process.stdout is not None
    times = [int(word) for word in process.stdout.read().split()]
    process.stdout.close()
    return sampler, pd.concat(parts, ignore_index=True), times


@needs_binding
@needs_gcc
def test_samples_are_of_the_functions_that_ran_when_they_ran(program: Path) -> None:
    sampler, samples, (first, second, third) = sampled(program)
    assert sampler.lost == 0
    types = {name: str(dtype) for name, dtype in samples.dtypes.items()}
    assert types == {
        **{"time_ns": "int64", "pid": "int32", "tid": "int32", "event": "int16"},
        **{"ip": "uint64", "period": "uint64", "cpu_mode": "int8"},
    }
    assert (samples["cpu_mode"] == 2).all()
    names = named(samples, program)
    # The clock: each of the last two functions, in its own time but for a millisecond or two.
    slack = 2_000_000
    for name, begin, end in (("heavy", first, second), ("light", second, third)):
        inside = samples["time_ns"].between(begin + slack, end - slack)
        assert inside.sum() > 50
        assert (names[inside] == name).mean() > 0.98
    # Nor do they run later: what is sampled then is the end of the process, whenever that comes.
    late = samples["time_ns"].gt(third + slack)
    assert set(names[late]) <= {"other"}
    assert late.mean() < 0.02
    # The child, forked after the attaching.
    children = samples[names == "child_work"]
    assert len(children) > 50
    assert children["pid"].nunique() == 1
    assert children["pid"].iloc[0] != samples.loc[names == "heavy", "pid"].iloc[0]


@needs_binding
@needs_gcc
@needs_perf
def test_functions_are_as_perf_record_finds_them(program: Path, tmp_path: Path) -> None:
    data = tmp_path / "perf.data"
    perf = ["perf", "record", "-q", "-p", "{pid}", "-o", str(data), "-e", "cpu-clock:u"]
    _, samples, _ = sampled(program, [*perf, "-F", "997", "-k", "CLOCK_MONOTONIC", "-N"])
    script = ["perf", "script", "-i", str(data), "-F", "pid,tid,ip"]
    out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    recorded = pd.DataFrame({"ip": [int(line.split()[-1], 16) for line in out.splitlines()]})
    ours, theirs = named(samples, program), named(recorded, program)
    assert len(ours) > 500
    assert abs(len(ours) / len(theirs) - 1) < 0.1
    for name in ("heavy", "light", "child_work"):
        share, expected = (ours == name).mean(), (theirs == name).mean()
        # Five standard errors of the difference of two shares.
        error = math.sqrt(expected * (1 - expected) * (1 / len(ours) + 1 / len(theirs)))
        assert abs(share - expected) < 5 * error
        assert expected > 0.05


@needs_binding
@needs_gcc
def test_children_that_run_already_are_followed(program: Path) -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f"{program}; true"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
    while not children.read_text().split():
        time.sleep(0.01)
    child = int(children.read_text().split()[0])
    while Path(f"/proc/{child}/comm").read_text() != "program\n":
        time.sleep(0.01)
    parts = []
    with LiveSampler(shell.pid) as sampler:
        shell.communicate(b"\n")
        parts.append(sampler.read())
        mappings = sampler.mappings()
    names = named(parts[0], program)
    assert (parts[0].loc[names == "heavy", "pid"] == child).sum() > 50
    mine = mappings[(mappings["pid"] == child) & (mappings["path"] == str(program))]
    heavy = functions(program)["heavy"].start
    assert ((mine["start"] <= heavy) & (heavy < mine["end"])).any()
    grandchild = parts[0].loc[names == "child_work", "pid"].iloc[0]
    assert grandchild != child
    assert (mappings["pid"] == grandchild).any()  # a fork inherits what was mapped


@needs_binding
def test_closing_leaves_nothing_open_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    before = sorted(os.listdir("/proc/self/fd")), len(live_samples._perf_buffers())
    for _ in range(3):
        sampler = LiveSampler(process.pid)
        sampler.read()
        assert live_samples._perf_buffers()
        sampler.close()
        sampler.close()
    del sampler
    gc.collect()
    assert (sorted(os.listdir("/proc/self/fd")), len(live_samples._perf_buffers())) == before
    process.communicate(b"\n")
    assert capfd.readouterr() == ("", "")


@needs_binding
def test_the_kernels_work_is_sampled_on_request() -> None:
    code = "import os\nfor _ in range(200_000): os.getppid(); os.stat('/')\ninput()"
    modes = {}
    for kernel in (False, True):
        process = subprocess.Popen(
            [sys.executable, "-c", f"input()\n{code}"], stdin=subprocess.PIPE
        )
        try:
            sampler = LiveSampler(process.pid, kernel=kernel)
        except Unusable:
            process.communicate(b"\n\n")
            pytest.skip("the kernel may not be sampled here (perf_event_paranoid)")
        with sampler:
            process.communicate(b"\n\n")
            modes[kernel] = sampler.read()["cpu_mode"]
    assert set(modes[False]) == {2}
    assert set(modes[True]) == {1, 2}


@needs_binding
@pytest.mark.parametrize("event", ["no-such-event", "rxyz", "cycles:u"])
def test_an_unknown_event_is_a_line(event: str) -> None:
    with pytest.raises(Unusable, match="cannot be sampled live"):
        LiveSampler(os.getpid(), event)


@needs_binding
def test_a_process_that_is_not_there_is_a_line() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    with pytest.raises(Unusable, match=f"process {done.pid}"):
        LiveSampler(done.pid)


@needs_binding
@pytest.mark.parametrize("event", ["cycles", "instructions"])
def test_a_hardware_event_is_sampled_or_refused_with_a_line(event: str) -> None:
    code = "input()\nfor number in range(10_000_000): pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        with LiveSampler(process.pid, event) as sampler:
            process.communicate(b"\n")
            assert sampler.read()["period"].sum() > 10_000_000
    except Unusable as error:
        process.communicate(b"\n")
        pytest.skip(f"no hardware counter: {error}")


def test_without_the_binding_a_line_says_what_works(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="lotus trace --perf"):
        live_samples.binding((str(tmp_path),))
    suffix = live_samples.importlib.machinery.EXTENSION_SUFFIXES[0]
    (tmp_path / f"perf{suffix}").write_bytes(b"not a library")
    with pytest.raises(Unusable, match="cannot be loaded"):
        live_samples.binding((str(tmp_path),))
