"""Simulates a DataLoader: a discrete-event replay of measured costs under any setting.

It models torch's loader: workers start one after the other; each gets `prefetch_factor` indices at
the start, and one more index is sent for every batch taken; batches pass through one pipe in the
order in which they are ready and are taken in the order of their numbers, early ones being kept;
the pin thread; the end of the workers after each epoch; new shared memory for each batch.

All who compute (workers, main process, pin thread) share the cores equally, and each of n busy
cores is slower than one alone by the factor 1 + contention * (n - 1). Waiting for storage takes no
core; concurrent reads share the storage's bandwidth equally.

Not modelled: the interpreter lock within a worker, running out of memory, the page cache.
Times are nanoseconds.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lotus.common.numbers.array_types import Floats
from lotus.settings.space import Setting
from lotus.tune.simulation.event_loop import EventLoop, Pool, Process, Queue, Waitable
from lotus.tune.simulation.simulation_types import BatchTimeline, LoaderOutcome, Machine, Work

# How often a batch alternates between waiting and computing, which real samples do one by one.
SLICES = 4


def simulate(
    work: Work,
    setting: Setting,
    machine: Machine,
    *,
    batches: int | None = None,
    epochs: int = 1,
    seed: int = 0,
) -> LoaderOutcome:
    """Simulate `epochs` epochs of `batches` batches (default: as many as `work` has).

    Raises ValueError without a batch or an epoch.
    """
    per_epoch = len(work.size) if batches is None else batches
    if per_epoch < 1 or epochs < 1:
        raise ValueError("there must be at least one batch and one epoch")
    return _Simulation(work, setting.normal(), machine, per_epoch, epochs, seed).run()


def order_of(length: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the indices, of `length` recorded batches, that `count` simulated batches use."""
    random = np.random.default_rng(seed)
    parts = [np.arange(length)]
    while sum(map(len, parts)) < count:
        parts.append(random.permutation(length))
    return np.concatenate(parts)[:count]


class _Simulation:
    def __init__(
        self, work: Work, setting: Setting, machine: Machine, batches: int, epochs: int, seed: int
    ) -> None:
        self.work, self.setting, self.machine = work, setting, machine
        self.batches, self.epochs = batches, epochs
        total = batches * epochs
        chosen = order_of(len(work.size), total, seed)
        self.size = work.size[chosen]
        waits, reads = work.wait_ns[chosen], work.read_bytes[chosen]
        if machine.latency_ns is not None:
            waits = self.size * machine.latency_ns
        cut = np.maximum(np.minimum(self.size, SLICES), 1.0)
        cut[(waits == 0) & (reads == 0)] = 1.0
        computing, steps = work.cpu_ns[chosen], work.step_ns
        if not setting.num_workers:
            computing = np.maximum(computing - work.shared_ns, 0.0)
            steps = np.maximum(steps - work.free_ns, 0.0)
        self.slices = cut.astype(np.int64).tolist()
        self.wait = (waits / cut).tolist()
        self.read = (reads / cut).tolist()
        self.compute = (computing / cut).tolist()
        self.bytes = work.bytes[chosen].tolist()
        self.step = steps[order_of(len(steps), total, seed)].tolist()

        self.loop = EventLoop()
        self.cpu = self.loop.pool(machine.pace, machine.used)
        rate = machine.bandwidth / 1e9
        self.storage: Pool | None = None
        if rate < math.inf and reads.any():
            self.storage = self.loop.pool(lambda demand: rate / demand, lambda _: 1.0)
        nan = math.nan
        self.worker_of = [-1] * total
        self.fetch_start, self.made = [nan] * total, [nan] * total
        self.arrival, self.taken = [nan] * total, [nan] * total
        self.order: list[int] = []
        self.in_flight = self.peak = 0
        self.in_flight_bytes = self.peak_bytes = 0.0
        self.stepped = self.edges = self.took = 0.0
        self.busy = self.waited = 0.0  # time of the workers
        self.alive = 0.0

    def run(self) -> LoaderOutcome:
        self.loop.resume(self._main())
        self.loop.run()
        return self._outcome()

    # The processes

    def _main(self) -> Process:
        setting, work, loop = self.setting, self.work, self.loop
        workers = setting.num_workers
        pinning = setting.pin_memory and work.pin_ns > 0 and workers > 0
        ready: Queue = Queue(loop)
        inbox = pipe = ready
        self.indices: list[Queue] = []
        self.ended = Queue(loop)
        started = 0.0
        fresh = True
        for epoch in range(self.epochs):
            begin = loop.now
            first = epoch * self.batches
            yield self.cpu, work.iter_ns, 1.0
            if workers and (epoch == 0 or not setting.persistent_workers):
                pipe = Queue(loop)
                inbox = pipe
                if pinning:
                    inbox = Queue(loop)
                    loop.resume(self._pin_thread(pipe, inbox))
                self.indices = [Queue(loop) for _ in range(workers)]
                started = loop.now
                for number in range(workers):
                    yield self.cpu, work.spawn_ns, 1.0
                    loop.resume(self._worker(number, self.indices[number], pipe))
            if workers:
                yield from self._epoch(epoch, inbox, pinning)
            else:
                yield from self._alone(first, fresh)
            fresh = False
            self.edges += self.taken[self.order[first]] - begin
            last = epoch == self.epochs - 1
            if workers and (last or not setting.persistent_workers):
                end = loop.now
                for queue in self.indices:
                    queue.put(None)
                pipe.put(None)
                self.alive += (end - started) * workers
                for _ in range(workers):
                    yield self.ended, 0.0, 1.0
                self.edges += loop.now - end
        self.end = loop.now
        self.cpu.advance()
        self.used, self.wanted = self.cpu.used, self.cpu.wanted

    def _alone(self, first: int, fresh: bool) -> Process:
        """Run one epoch without workers."""
        loop, work = self.loop, self.work
        for batch in range(first, first + self.batches):
            self.fetch_start[batch] = loop.now
            if fresh:
                yield self.cpu, work.first_ns, 1.0
                fresh = False
            yield from self._fetch(batch)
            if self.setting.pin_memory:
                yield self.cpu, work.pin_ns, 1.0
            self.made[batch] = self.arrival[batch] = loop.now
            self._keep(batch)
            self._take(batch)
            yield from self._step(batch)

    def _epoch(self, epoch: int, inbox: Queue, pinning: bool) -> Process:
        """Run one epoch with workers, as `_MultiProcessingDataLoaderIter` does."""
        loop, setting, cpu = self.loop, self.setting, self.cpu
        workers, indices = setting.num_workers, self.indices
        prefetch = setting.prefetch_factor or 1
        first = epoch * self.batches
        end = first + self.batches
        sent = first
        place = 0
        tasks = [0] * workers
        in_order = setting.in_order is not False
        get_ns = 0.0 if pinning else self.work.get_ns

        def give() -> None:
            """Send the next index to the next worker that may have one (`_try_put_index`)."""
            nonlocal sent, place
            if sent == end:
                return
            for _ in range(workers):
                number = place
                place = (place + 1) % workers
                if in_order or tasks[number] < prefetch:
                    break
            else:
                return
            tasks[number] += 1
            self.worker_of[sent] = number
            indices[number].put(sent)
            sent += 1

        for _ in range(prefetch * workers):
            give()
        early: set[int] = set()
        for wanted in range(first, end):
            while True:
                if wanted in early:
                    early.remove(wanted)
                    batch = wanted
                    break
                batch = yield inbox, 0.0, 1.0
                begin = loop.now
                yield cpu, get_ns, 1.0
                self.took += loop.now - begin
                self.arrival[batch] = loop.now
                if batch == wanted or not in_order:
                    break
                early.add(batch)
            tasks[self.worker_of[batch]] -= 1
            give()
            self._take(batch)
            yield from self._step(batch)

    def _worker(self, number: int, indices: Queue, pipe: Queue) -> Process:
        loop, cpu, work = self.loop, self.cpu, self.work
        yield cpu, work.boot_ns, 1.0
        extra = work.first_ns
        while True:
            batch = yield indices, 0.0, 1.0
            if batch is None:
                yield cpu, work.shutdown_ns, 1.0
                self.ended.put(number)
                return
            begin = self.fetch_start[batch] = loop.now
            if extra:
                yield cpu, extra, 1.0
                extra = 0.0
            yield from self._fetch(batch)
            yield cpu, work.pickle_ns, 1.0
            self.busy += loop.now - begin
            self.made[batch] = loop.now
            self._keep(batch)
            pipe.put(batch)

    def _fetch(self, batch: int) -> Process:
        loop, cpu = self.loop, self.cpu
        wait, read, compute = self.wait[batch], self.read[batch], self.compute[batch]
        storage: Waitable | None = self.storage if read else None
        for _ in range(self.slices[batch]):
            begin = loop.now
            if wait:
                yield loop, wait, 1.0
            if storage is not None:
                yield storage, read, 1.0
            self.waited += loop.now - begin
            yield cpu, compute, 1.0

    def _pin_thread(self, pipe: Queue, inbox: Queue) -> Process:
        loop = self.loop
        while True:
            batch = yield pipe, 0.0, 1.0
            if batch is None:
                return
            begin = loop.now
            yield self.cpu, self.work.get_ns + self.work.pin_ns, 1.0
            self.took += loop.now - begin
            inbox.put(batch)

    def _step(self, batch: int) -> Process:
        begin = self.loop.now
        yield self.cpu, self.step[batch], self.work.step_cores
        self.stepped += self.loop.now - begin

    # Bookkeeping

    def _keep(self, batch: int) -> None:
        self.in_flight += 1
        self.in_flight_bytes += self.bytes[batch]
        self.peak = max(self.peak, self.in_flight)
        self.peak_bytes = max(self.peak_bytes, self.in_flight_bytes)

    def _take(self, batch: int) -> None:
        self.taken[batch] = self.loop.now
        self.order.append(batch)
        self.in_flight -= 1
        self.in_flight_bytes -= self.bytes[batch]

    def _outcome(self) -> LoaderOutcome:
        work, setting, machine = self.work, self.setting, self.machine
        time = max(self.end, 1e-9)
        samples = float(self.size.sum())
        taken = np.array(self.taken)
        order = np.array(self.order, np.int64)
        alive = max(self.alive, 1e-9)
        reading = 0.0 if self.storage is None else self.storage.used
        memory = work.main_bytes + self.peak_bytes
        if setting.num_workers:
            memory += setting.num_workers * work.worker_bytes
        return LoaderOutcome(
            setting=setting,
            samples=int(samples),
            seconds=time / 1e9,
            samples_per_s=samples * 1e9 / time,
            steady_samples_per_s=self._steady(taken, order),
            first_batch_s=float(taken[order[0]]) / 1e9,
            wait_share=1.0 - self.stepped / time,
            startup_share=self.edges / time,
            cores=self.used / time,
            cores_wanted=self.wanted / time,
            cores_share=self.used / time / machine.cores,
            storage_share=reading / time,
            idle_share=max(1.0 - self.busy / alive, 0.0) if setting.num_workers else 0.0,
            waiting_share=self.waited / (alive if setting.num_workers else time),
            taking_share=self.took / time,
            peak_batches=self.peak,
            in_flight_bytes=self.peak_bytes,
            memory_bytes=memory,
            timeline=BatchTimeline(
                worker=np.array(self.worker_of, np.int64),
                fetch_start_ns=np.array(self.fetch_start),
                made_ns=np.array(self.made),
                arrival_ns=np.array(self.arrival),
                taken_ns=taken,
                order=order,
            ),
        )

    def _steady(self, taken: Floats, order: npt.NDArray[np.int64]) -> float:
        """Return samples per second from the end of the warm-up of each epoch to its last batch."""
        setting = self.setting
        depth = max(setting.num_workers * (setting.prefetch_factor or 1), 1)
        return steady_rate(
            [(taken[part], self.size[part]) for part in np.split(order, self.epochs)],
            depth,
        )


def steady_rate(epochs: list[tuple[Floats, Floats]], depth: int) -> float:
    """Return samples per second without the first `depth` batches of each epoch.

    `epochs` has for each epoch the time (ns) at which each batch was taken, in order, and its
    number of samples. In an epoch of less than twice `depth` batches the first half is left out.
    Returns 0.0 if no two batches are left.
    """
    samples = elapsed = 0.0
    for taken, size in epochs:
        first = min(depth, len(taken) // 2)
        if len(taken) - first < 2:
            first = 0
        if len(taken) < 2:
            continue
        samples += float(size[first + 1 :].sum())
        elapsed += float(taken[-1] - taken[first])
    return samples * 1e9 / elapsed if elapsed > 0 else 0.0
