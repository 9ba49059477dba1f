"""Compares the speed and the results of reading perf.data with those of `perf script`.

    PYTHONPATH=. python tools/bench/speed/perf_data.py [--samples 1600000] [--repeat 5]
        [--file FILE]

perf records the file: a program of several forked processes that map a library mid-run, two
software events, CLOCK_MONOTONIC. `perf script` prints the same fields into a file (pid, tid, time,
event, ip and period, without symbols); it is also timed with its defaults, which include symbols.
Both read from the page cache, each in a process of its own. Printed are wall and CPU seconds, of
lotus from the call of `read` to the whole table of samples, and from the start of the process;
median, minimum and maximum over --repeat runs; and whether the samples agree.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tools.bench import provenance

PROGRAM = """
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
volatile double sink;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int count, char **words) {
    double seconds = atof(words[1]);
    for (int wave = 0; wave < 3; wave++) {
        for (int child = 0; child < 4; child++) {
            if (fork()) continue;
            double end = now() + seconds / 3, half = end - seconds / 6;
            while (now() < half) for (int i = 0; i < 10000; i++) sink += i * 0.5;
            void *library = dlopen("libm.so.6", RTLD_NOW);
            double (*gamma)(double) = (double (*)(double))dlsym(library, "tgamma");
            while (now() < end) for (int i = 0; i < 1000; i++) sink += gamma(1.0 + i % 50);
            _exit(0);
        }
        while (wait(0) > 0) { }
    }
    return 0;
}
"""
FIELDS = "pid,tid,time,event,ip,period"


def record(folder: Path, wanted: int) -> Path:
    """Record until the file has so many samples: how fast they come differs between machines."""
    (folder / "busy.c").write_text(PROGRAM)
    program, file = folder / "busy", folder / "perf.data"
    subprocess.run(["gcc", "-O1", "-o", program, folder / "busy.c", "-ldl"], check=True)
    seconds = 12.0
    for _ in range(4):
        command = ["perf", "record", "-q", "-N", "-e", "cpu-clock,task-clock", "-c", "20000"]
        command += ["-k", "CLOCK_MONOTONIC", "-o", str(file), str(program), f"{seconds:.1f}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        from native_map.recording.perf_data import read

        count = len(read(file))
        if count >= wanted:
            return file
        seconds *= min(max(1.2 * wanted / max(count, 1), 1.2), 5)
    raise SystemExit(f"only {count} samples could be recorded; name a file with --file")


def peak_bytes() -> int:
    """Return the most memory this process had; unlike ru_maxrss it does not count its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if "VmHWM" in line)) * 1024


def ours(path: str) -> None:
    """Child process: read the file and print what it took, as JSON."""
    from native_map.recording.perf_data import read

    before = peak_bytes()
    began, cpu = time.perf_counter(), time.process_time()
    recording = read(path)
    samples = recording.samples
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        json.dumps(
            {
                "seconds": took,
                "samples": len(samples),
                "cpu_s": cpu,
                "peak_bytes": peak_bytes(),
                "before_bytes": before,
                "counted": recording.counted,
                "damage": recording.damage,
                "reader": recording.reader,
            }
        )
    )


def in_chunks(path: str) -> None:
    """Child process: the same, as a file too large to stay in memory is read."""
    from native_map.recording import perf_data

    perf_data.KEPT = 0
    before = peak_bytes()
    began, cpu = time.perf_counter(), time.process_time()
    total = sum(len(chunk) for chunk in perf_data.read(path).chunks())
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    result = {"seconds": took, "cpu_s": cpu, "samples": total}
    print(json.dumps({**result, "peak_bytes": peak_bytes(), "before_bytes": before}))


def child(option: str, path: Path) -> dict:
    began = time.perf_counter()
    command = [sys.executable, os.path.abspath(__file__), option, str(path)]
    completed = subprocess.run(command, check=True, capture_output=True, text=True)
    return {**json.loads(completed.stdout), "process_s": time.perf_counter() - began}


def script(path: Path, into: Path, *options: str) -> tuple[float, float]:
    """Wall and processor seconds of one `perf script`."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with into.open("wb") as out:
        command = ["perf", "script", "-i", str(path), "--ns", *options]
        subprocess.run(command, check=True, stdout=out, stderr=subprocess.DEVNULL)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def same(path: Path, printed: Path) -> bool:
    """Every sample of ours is one of perf's lines and the other way round, in all six columns."""
    from native_map.recording.perf_data import read

    recording = read(path)
    s = recording.samples
    mine = np.stack(
        [s[name].to_numpy().astype(np.uint64) for name in ("time_ns", "pid", "tid", "event")]
        + [s["ip"].to_numpy(), s["period"].to_numpy()]
    )
    events = {name: number for number, name in enumerate(recording.events)}
    theirs = np.empty((6, len(s)), np.uint64)
    number = 0
    with printed.open() as lines:
        for number, line in enumerate(lines, 1):
            if number > len(s):
                return False
            who, moment, period, event, ip = line.split()
            pid, tid = who.split("/")
            at = int(moment.replace(".", "").rstrip(":"))
            theirs[:, number - 1] = (
                at,
                int(pid),
                int(tid),
                events[event[:-1]],
                int(ip, 16),
                int(period),
            )
    if number != len(s):
        return False
    return bool((mine[:, np.lexsort(mine)] == theirs[:, np.lexsort(theirs)]).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_600_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--file", type=Path, help="read this one instead of recording")
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    parser.add_argument("--chunks", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ours or args.chunks:
        ours(args.ours) if args.ours else in_chunks(args.chunks)
        return
    print(provenance.header(np))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = args.file or record(folder, args.samples)
        printed = folder / "script.txt"
        rounds: dict[str, list[tuple[float, float]]] = {}
        for _ in range(args.repeat):  # interleaved: the machine's mood meets all alike
            plain, symbols = script(path, printed, "-F", FIELDS), script(path, folder / "s")
            mine, bounded = child("--ours", path), child("--chunks", path)
            for label, took in (
                ("perf script, no symbols", plain),
                ("perf script, its defaults", symbols),
                ("ours, whole", (mine["seconds"], mine["cpu_s"])),
                ("ours, chunks", (bounded["seconds"], bounded["cpu_s"])),
            ):
                rounds.setdefault(label, []).append(took)
        script(path, printed, "-F", FIELDS)
        agree = same(path, printed)
        size, samples = path.stat().st_size, mine["samples"]
    print(f"file     {size / 1e6:.0f} MB, {samples:,} samples, read {mine['reader']}", end="; ")
    print(", ".join(f"{n:,} {kind}" for kind, n in mine["counted"].items() if kind != "sample"))
    print(f"damage   {mine['damage'] or 'none'}")
    print(f"{'':26} {'median':>8} {'min':>8} {'max':>8} {'samples/s':>12} {'processor':>10}")
    for label, times in rounds.items():
        walls, cpus = zip(*times, strict=True)
        middle = statistics.median(walls)
        print(f"{label:26} {middle:6.3f} s {min(walls):6.3f} s {max(walls):6.3f} s", end=" ")
        print(f"{samples / middle:12,.0f} {statistics.median(cpus):8.3f} s")
    for other in ("perf script, no symbols", "perf script, its defaults"):
        for place, what in enumerate(("wall", "processor")):
            ratios = [
                theirs[place] / mine[place]
                for theirs, mine in zip(rounds[other], rounds["ours, whole"], strict=True)
            ]
            print(f"ratio    {statistics.median(ratios):.1f} times {other}", end=", ")
            print(f"{what} ({min(ratios):.1f} to {max(ratios):.1f})")
    print(f"start    {mine['process_s'] - mine['seconds']:.2f} s for Python and its imports")
    for label, result in (("whole", mine), ("chunks", bounded)):
        grew = result["peak_bytes"] - result["before_bytes"]
        print(f"memory   {label}: {grew / 1e6:.0f} MB more than", end=" ")
        print(f"{result['before_bytes'] / 1e6:.0f} MB after importing")
    print(f"same result as perf script: {'yes' if agree else 'NO'}")


if __name__ == "__main__":
    main()
