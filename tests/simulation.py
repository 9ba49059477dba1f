"""A whole consistent run at once, from a small simulation of torch's DataLoader::

path = simulate(tmp_path / "run", workers=2, batches=8, batch_size=4, step_ns=5_000_000)
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.logs import MS, START_NS, RunBuilder, Sample

OPS = (("Loader", 3 * MS), ("RandomResizedCrop", MS), ("ToTensor", MS // 2))


def simulate(
    path: Path,
    *,
    workers: int = 2,
    batches: int = 8,
    batch_size: int = 4,
    epochs: int = 1,
    ops: Sequence[tuple[str, int]] = OPS,
    sample_self_ns: int = 10_000,
    collate_ns: int = 2 * MS,
    fetch_self_ns: int = 50_000,
    step_ns: int = 5 * MS,
    startup_ns: int = 20 * MS,
    pickle_ns: int = MS,
    lock_ns: int = 10_000,
    write_ns: int = 200_000,
    prefetch: int = 2,
    extra_ns: Callable[[int, int, int, str], int] | None = None,
    rank: int | None = None,
    first_pid: int = 100,
    builder: RunBuilder | None = None,
) -> Path:
    """Write a run of one loader as torch would have run it (in order, not persistent).

    `extra_ns(epoch, batch, sample index, operation)` is added to an operation's duration: plant a
    slow sample, worker (batch % workers) or operation with it. Every sample's index is its ordinal.
    With `builder`, one more rank or process is added to that run and the run is left open.
    """
    run = builder or RunBuilder(path)
    main = run.process(first_pid, rank=rank)
    run.report("python", first_pid, ppid=1, executable="python", argv=["train.py"], python="3.11.7")
    run.report("torch", first_pid, torch="2.14.1")
    main.loader(
        0,
        num_workers=workers,
        batch_size=batch_size,
        length=batches,
        dataset_length=batches * batch_size,
        prefetch_factor=prefetch if workers else None,
        start_method="fork" if workers else None,
    )

    def samples_of(epoch: int, batch: int) -> list[Sample]:
        made = []
        for index in range(batch * batch_size, (batch + 1) * batch_size):
            extra = extra_ns or (lambda *_: 0)
            rows = [(name, took + extra(epoch, batch, index, name)) for name, took in ops]
            made.append(Sample(index, sum(took for _, took in rows) + sample_self_ns, rows))
        return made

    now, pid = START_NS, first_pid
    for epoch in range(epochs):
        begin = now
        pids = list(range(pid + 1, pid + 1 + workers))
        pid += workers
        main.iterator(0, epoch, begin, begin + MS, pids)
        now = begin + MS
        logs = []
        for number, worker_pid in enumerate(pids):
            log = run.process(worker_pid, ppid=first_pid, rank=rank, start_ns=begin + MS // 2)
            loop, ready = begin + startup_ns // 2, begin + startup_ns
            log.worker(
                number,
                num_workers=workers,
                loop_ns=loop,
                process_ns=begin + MS // 2,
                ready_ns=ready,
            )
            log.operations(*[name for name, _ in ops])
            logs.append(log)
        if not workers:
            main.operations(*[name for name, _ in ops])
        free = [begin + startup_ns] * workers  # when each worker asks for its next index
        asked_ns = [now] * batches  # when each index is handed out; set as batches are taken
        ready_at: list[int] = []
        sent_at: dict[int, list[tuple[int, ...]]] = {number: [] for number in range(workers)}
        arrivals: dict[int, int] = {}
        for batch in range(batches):
            start = now
            if not workers:
                made = samples_of(epoch, batch)
                took = sum(sample.duration_ns for sample in made) + collate_ns + fetch_self_ns
                main.batch(
                    batch,
                    start_ns=start,
                    samples=made,
                    collate_ns=collate_ns,
                    fetch_ns=took,
                    epoch=epoch,
                    cpu_ns=took,
                    bytes=batch_size * 1000,
                )
                now = start + took
                main.wait(0, epoch, batch, start_ns=start, end_ns=now)
                now += step_ns
                continue
            # Make all that was asked for by now: `prefetch` batches a worker ahead.
            while len(ready_at) < min(batches, batch + prefetch * workers):
                number = len(ready_at) % workers
                this = len(ready_at)
                made = samples_of(epoch, this)
                idle = free[number]
                fetch = max(idle, asked_ns[this])
                took = sum(sample.duration_ns for sample in made) + collate_ns + fetch_self_ns
                put = fetch + took
                logs[number].batch(
                    this,
                    start_ns=fetch,
                    samples=made,
                    collate_ns=collate_ns,
                    fetch_ns=took,
                    sends=sent_at[number],
                    idle_start_ns=idle,
                    idle_ns=fetch - idle,
                    cpu_ns=took,
                    bytes=batch_size * 1000,
                )
                sent_at[number] = [(0, this, put, pickle_ns, lock_ns, write_ns)]
                free[number] = put
                ready_at.append(put + pickle_ns)
            # Take from the queue in order of readiness until this one is there.
            while batch not in arrivals:
                waiting = [n for n in range(len(ready_at)) if n not in arrivals]
                other = min(waiting, key=lambda n: ready_at[n])
                now = arrivals[other] = max(now, ready_at[other])
            if batch + prefetch * workers < batches:
                asked_ns[batch + prefetch * workers] = now
            main.wait(0, epoch, batch, start_ns=start, end_ns=now, arrival_ns=arrivals[batch])
            now += step_ns
        main.epoch_end(0, epoch, now, batches, True, now)
        if workers:
            main.shutdown(0, epoch, now, now + MS)
        for number, log in enumerate(logs):
            log.sends(*sent_at[number])
            log.worker_end(now + MS // 2)
        now += 2 * MS
    return run.save() if builder else run.end(end_ns=now)
