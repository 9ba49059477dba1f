"""Measures whether operations blocked in a lock, a sleep, a disk and a socket are told apart.

    PYTHONPATH=. python tools/bench/accuracy/blocking.py [--runs 20] [--busy 0]

Each run traces this file as a program: four loaders with two workers, each with an operation that
is blocked most of its time for a known reason. Printed are the number of runs in which each reason
was identified, what it was mistaken for in the others, and, for batches that only compute, time on
a core plus run-queue delay in % of the wall time. `--busy N` keeps N other processes computing.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCHES, BATCH, BLOCKED_S = 16, 10, 0.01


class Sleep:
    def __call__(self, value: int) -> int:
        time.sleep(BLOCKED_S)
        return value


class Lock:
    def __init__(self) -> None:
        self.lock = multiprocessing.Lock()

    def __call__(self, value: int) -> int:
        with self.lock:
            time.sleep(BLOCKED_S)
        return value


class Store:
    """Writes, and waits until the disk has it: reading would be from memory."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "data")

    def __call__(self, value: int) -> int:
        with open(self.path, "rb+", buffering=0) as file:
            begin = time.monotonic()
            while time.monotonic() - begin < BLOCKED_S:
                file.seek(value * 4096)
                file.write(os.urandom(4096))
                os.fsync(file.fileno())
        return value


class Socket:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def __call__(self, value: int) -> int:
        with socket.create_connection(self.address) as connection:
            connection.recv(1)
        return value


class Compute:
    def __call__(self, value: int) -> int:
        begin = time.thread_time()
        while time.thread_time() - begin < BLOCKED_S / 4:
            pass
        return value


# What may be told of each; the lock's holder sleeps.
REASONS = {
    "Sleep": {"sleep"},
    "Lock": {"shared-lock"},
    "Store": {"file", "storage"},
    "Socket": {"socket", "events"},
}


def served() -> tuple[str, int]:
    """The address of a server that answers a connection after a while, in a process of its own."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer(connection: socket.socket) -> None:
        time.sleep(BLOCKED_S)
        connection.sendall(b"x")
        connection.close()

    def serve() -> None:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    multiprocessing.Process(target=serve, daemon=True).start()  # ends with the program
    address: tuple[str, int] = listener.getsockname()
    listener.close()
    return address


def program() -> None:
    """Iterate a loader for each operation."""
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):  # type: ignore[type-arg]
        def __init__(self, transform: Callable[[int], int]) -> None:
            self.transform = transform

        def __len__(self) -> int:
            return BATCHES * BATCH

        def __getitem__(self, index: int) -> int:
            return self.transform(index)

    with tempfile.TemporaryDirectory(dir=".") as folder:
        Path(folder, "data").write_bytes(bytes(BATCHES * BATCH * 4096))
        address = served()
        for operation in (Sleep(), Lock(), Store(folder), Socket(address), Compute()):
            for _ in DataLoader(Numbers(operation), batch_size=BATCH, num_workers=2):
                pass


def judged(folder: Path) -> tuple[dict[str, str], list[float]]:
    """(what each operation was told to be blocked in, cores' share of batches that compute)."""
    from lotus.analysis.common.scope import scopes
    from lotus.analysis.verdict.account import account
    from lotus.analysis.verdict.causes.making.work import OPERATION
    from lotus.reading.run import load

    run = load(folder)
    seen: dict[str, str] = {}
    for scope in scopes(run):
        charges = [charge for charge in account(scope).charges if charge.kind == OPERATION.kind]
        largest = max(charges, key=lambda charge: charge.ns, default=None)
        if largest is not None:
            seen[largest.name] = _reason(largest.evidence)
    loader = run.loaders.loc[run.loaders["dataset"].notna(), "loader"].max()
    batches = run.batches[run.batches["loader"] == loader]
    on_cores = (batches["cpu_ns"] + batches["run_delay_ns"]) / batches["fetch_ns"]
    return seen, [float(share) for share in on_cores.dropna()]


def _reason(evidence: dict[str, float]) -> str:
    """As the report has it: a lock that many were found at, else what most were found in."""
    ending = "_looks_share"
    shares = {
        name.removesuffix(ending).replace("_", "-"): share
        for name, share in evidence.items()
        if name.endswith(ending)
    }
    if shares.get("shared-lock", 0.0) >= 0.2:
        return "shared-lock"
    return max(shares, key=lambda name: shares[name], default="")


def runs(count: int) -> Iterator[tuple[dict[str, str], list[float]]]:
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder, "run")
            words: list[Any] = [sys.executable, "-m", "lotus", "trace", "-q", "-o", directory, "--"]
            subprocess.run([*words, sys.executable, __file__, "--program"], check=True)
            yield judged(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside")
    parser.add_argument("--program", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.program:
        program()
        return
    from tools.bench import provenance
    from tools.bench.diagnosis import busy

    print(provenance.header(more=f"; {args.busy} computing processes beside"))
    counts_of: dict[str, Counter[str]] = {name: Counter() for name in REASONS}
    sums: list[float] = []
    with busy(args.busy):
        for reasons, on_cores in runs(args.runs):
            sums += on_cores
            for name in REASONS:
                counts_of[name][reasons.get(name, "(nothing)")] += 1
    for name, counts in counts_of.items():
        right = sum(counts[reason] for reason in REASONS[name])
        print(f"{name:7} {right:3} of {args.runs}   {dict(counts)}")
    low, *_, high = statistics.quantiles(sums, n=100)
    print(
        f"computing batches: core and run-queue delay are {statistics.median(sums):.2%} of the "
        f"wall time (1 % to 99 % of {len(sums)} batches: {low:.2%} to {high:.2%})"
    )


if __name__ == "__main__":
    main()
