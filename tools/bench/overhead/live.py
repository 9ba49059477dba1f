"""Measures what `lotus top` and `lotus trace --live` cost the observed program, and themselves.

    PYTHONPATH=. python tools/bench/overhead/live.py [--repeat 5] [--seconds 20] [--workers 2]

A program with a fixed amount of work is traced alone, with `lotus top` on a terminal beside it, and
with `--live`, in random order. Printed are the CPU seconds of the program and its workers, and
their user instructions if the machine has counters, median and range; and the CPU time that lotus
itself takes per second.
"""

import argparse
import fcntl
import os
import platform
import pty
import random
import re
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

from tools.bench import provenance

PYTHON = sys.executable
LOTUS = [PYTHON, "-m", "lotus"]
WAYS = ("alone", "top", "live")

PROGRAM = """
import os, sys, torch
from torch.utils.data import DataLoader, Dataset

class Work:
    def __call__(self, index):
        total = 0
        for number in range(60_000):  # some milliseconds
            total += number
        return total

class Numbers(Dataset):
    def __init__(self, length):
        self.transform, self.length = Work(), length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return torch.tensor(self.transform(index))

if __name__ == "__main__":
    torch.set_num_threads(1)
    for batch in DataLoader(Numbers(int(sys.argv[2])), batch_size=8, num_workers=int(sys.argv[1])):
        pass
    used = os.times()
    print("cpu", sum(used[:4]))
"""


def counts_instructions() -> bool:
    """Return True if perf counts user instructions here."""
    if shutil.which("perf") is None:
        return False
    command = ["perf", "stat", "-x,", "-e", "instructions:u", "true"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    return bool(re.search(r"^\d+,", completed.stderr, re.MULTILINE))


class Terminal:
    """A command on a terminal whose output is read."""

    def __init__(self, command: list[str]) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while os.read(self.master, 1 << 16):
                pass
        except OSError:
            pass

    def end(self) -> float:
        """Press q; return the CPU seconds of the command."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(self.master, b"q")
        self.process.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(way: str, words: list[str], perf: bool) -> dict[str, float]:
    """Run the program once in that way; return what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        directory = str(Path(folder) / "R")
        counted = ["perf", "stat", "-x,", "-e", "instructions:u", "--", *words] if perf else words
        options = ["--live"] if way == "live" else []
        start = time.monotonic()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(
            [*LOTUS, "trace", "-q", *options, "-o", directory, "--", *counted],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        terminal = None
        if way == "top":
            terminal = Terminal([*LOTUS, "top", directory])
        out, err = process.communicate()
        seconds = time.monotonic() - start
        whole = resource.getrusage(resource.RUSAGE_CHILDREN)
        results = {"seconds": seconds, "cpu": float(re.findall(r"^cpu ([\d.]+)", out, re.M)[0])}
        # What lotus trace took, and the end of the program after its last word.
        used = whole.ru_utime + whole.ru_stime - before.ru_utime - before.ru_stime
        results["lotus"] = used - results["cpu"]
        if terminal is not None:
            results["lotus"] = terminal.end()
        if perf and (counts := re.findall(r"^(\d+),", err, re.M)):
            results["instructions"] = float(counts[0])
        return results


def line(values: list[float], scale: float = 1) -> str:
    """Return median (least to most)."""
    scaled = [value / scale for value in values]
    return f"{statistics.median(scaled):.3f} ({min(scaled):.3f} to {max(scaled):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20, help="that each run takes, about")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{provenance.cpus()}, Python {platform.python_version()}, commit", end=" ")
    print(provenance.commit())
    perf = counts_instructions()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)

        def words(samples: int) -> list[str]:
            return [PYTHON, str(program), str(arguments.workers), str(samples)]

        first = run("alone", words(2000), perf)
        none = run("alone", words(8), perf)
        speed = 1992 / max(first["seconds"] - none["seconds"], 0.1)
        samples = max(int(speed * (arguments.seconds - none["seconds"])) // 8 * 8, 800)
        results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        order = [way for way in WAYS for _ in range(arguments.repeat)]
        random.shuffle(order)
        for way in order:
            results[way].append(run(way, words(samples), perf))
    for way in WAYS:
        mine = results[way]
        print(f"{way}:")
        print(f"  program, CPU s           {line([result['cpu'] for result in mine])}")
        if all("instructions" in result for result in mine):
            counts = [result["instructions"] for result in mine]
            print(f"  user instructions, 1e9   {line(counts, 1e9)}")
        print(f"  elapsed s                {line([result['seconds'] for result in mine])}")
        whose = "lotus top" if way == "top" else "lotus trace"
        own = line([result["lotus"] for result in mine])
        print(f"  {whose}, CPU s {own}, start-up included")


if __name__ == "__main__":
    main()
