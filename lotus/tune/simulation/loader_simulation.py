"""What a DataLoader would do: a discrete-event replay of measured costs under any setting.

It knows what torch's loader does: workers started one after the other, `prefetch_factor` indices
given to each at the start and one more for every batch that is taken, batches handed over through
one pipe in the order in which they are ready and taken in the order of their numbers, a batch that
came too early kept aside, the pin thread, the end of the workers after each epoch, new shared
memory for each batch of a worker.

The cores are shared equally by all who have something to compute (workers, main process, pin
thread), and each of n busy cores is slower than one alone by the factor 1 + contention * (n - 1).
Waiting for storage takes no core; bytes read share the storage's bandwidth equally.

Not modelled: the interpreter lock within a worker, memory that runs out, which file is cached.
Times are nanoseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lotus.settings.space import Setting
from lotus.tune.simulation.event_loop import Loop, Place, Pool, Process, Queue

Floats = npt.NDArray[np.float64]

# Times that a batch alternates between waiting and computing; samples do so one by one.
SLICES = 4


@dataclass(frozen=True)
class Work:
    """What batches cost on a core that is not shared, as measured; one element per batch.

    The batches come in their order, and again in random orders where more are asked for.
    """

    size: Floats  # samples
    cpu_ns: Floats  # of the fetch with its collate
    wait_ns: Floats  # of the fetch, for storage or anything else that is no core
    step_ns: Floats  # of the consumer; any number of elements
    bytes: Floats  # in memory
    read_bytes: Floats  # from storage; their time is not in wait_ns. 0: wait_ns has it all
    step_cores: float = 1.0  # that the step keeps busy; 0: it computes elsewhere
    shared_ns: float = 0.0  # of cpu_ns, for new memory in a worker; the main process has its old
    free_ns: float = 0.0  # of step_ns, to give a worker's shared memory back
    pickle_ns: float = 0.0  # in the worker, per batch
    get_ns: float = 0.0  # to take a batch from the pipe, by the main process or the pin thread
    pin_ns: float = 0.0  # to copy a batch to pinned memory; 0: never pinned, whatever the setting
    iter_ns: float = 0.0  # of `iter()` besides the workers
    spawn_ns: float = 0.0  # of the main process per worker that it starts
    boot_ns: float = 0.0  # CPU time of a worker until it asks for its first index
    first_ns: float = 0.0  # CPU time that the first batch of each process takes more
    shutdown_ns: float = 0.0  # CPU time of a worker to end; the main process waits for all
    main_bytes: float = math.nan  # memory of the main process
    worker_bytes: float = math.nan  # that each worker adds

    def __post_init__(self) -> None:
        length = len(self.size)
        for name in ("size", "cpu_ns", "wait_ns", "bytes", "read_bytes", "step_ns"):
            values = getattr(self, name)
            if not len(values) or (name != "step_ns" and len(values) != length):
                raise ValueError(f"{name} has {len(values)} elements where there are {length}")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} must not be negative or missing")


@dataclass(frozen=True)
class Machine:
    """Where it runs."""

    cores: float
    contention: float = 0.0  # how much slower each further busy core makes all of them
    others: float = 0.0  # processes of other programs that want each core, on average
    speed: float = 1.0  # of a core, against the measured one
    latency_ns: float | None = None  # each sample waits so long, in place of what was measured
    bandwidth: float = math.inf  # of the storage, bytes per second

    def __post_init__(self) -> None:
        for name in ("cores", "speed", "bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0")
        for name in ("contention", "others", "latency_ns"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0")

    def pace(self, demand: float) -> float:
        """The speed of each of `demand` who compute at once, against a measured core alone."""
        busy = min(demand, self.cores)
        slower = 1.0 + self.contention * max(busy - 1.0, 0.0)
        return self.speed / (self._crowded(demand) * slower)

    def used(self, demand: float) -> float:
        """Cores that `demand` who compute at once have between them."""
        return demand / self._crowded(demand)

    def _crowded(self, demand: float) -> float:
        load = demand / self.cores
        return max(load, 1.0) + self.others * min(load, 1.0)


@dataclass(frozen=True)
class Timeline:
    """When what happened to each batch, by number over all epochs; NaN: it did not."""

    worker: npt.NDArray[np.int64]
    fetch_start_ns: Floats
    made_ns: Floats  # fetched, collated and pickled
    arrival_ns: Floats  # in the main process
    wait_start_ns: Floats
    taken_ns: Floats  # `next` returned it
    order: npt.NDArray[np.int64]  # numbers of the batches in the order in which they were taken


@dataclass(frozen=True)
class Outcome:
    """What one setting brings. Shares are of the whole time of the loops."""

    setting: Setting
    samples: int
    seconds: float  # of all epochs, from `iter()` to the end of the last `next`
    samples_per_s: float  # over `seconds`
    steady_samples_per_s: float  # from when every prefetched batch has been taken once
    first_batch_s: float  # `iter()` to the first batch of the first epoch
    wait_share: float  # all but the consumer's steps
    startup_share: float  # before the first batches and after the last ones
    cores: float  # that its processes keep busy, on average
    cores_wanted: float  # that they would if there were as many as they like
    cores_share: float  # of those there are
    storage_share: float  # of the time in which bytes were read
    idle_share: float  # of the workers' time, without an index to work on
    waiting_share: float  # of the workers' time, for storage
    taking_share: float  # the main process (or pin thread) took batches out of the pipe
    peak_batches: int  # made and not yet taken
    in_flight_bytes: float  # of those
    memory_bytes: float  # of all processes with those batches; NaN: not known
    timeline: Timeline


def simulate(
    work: Work,
    setting: Setting,
    machine: Machine,
    *,
    batches: int | None = None,
    epochs: int = 1,
    seed: int = 0,
) -> Outcome:
    """Run `epochs` epochs of `batches` batches (default: as many as `work` has)."""
    per_epoch = len(work.size) if batches is None else batches
    if per_epoch < 1 or epochs < 1:
        raise ValueError("there must be at least one batch and one epoch")
    return _Simulation(work, setting.normal(), machine, per_epoch, epochs, seed).run()


def order_of(length: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Which of `length` recorded batches the `count` simulated ones are."""
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

        self.loop = Loop()
        self.cpu = self.loop.pool(machine.pace, machine.used)
        rate = machine.bandwidth / 1e9
        self.storage: Pool | None = None
        if rate < math.inf and reads.any():
            self.storage = self.loop.pool(lambda demand: rate / demand, lambda _: 1.0)
        nan = math.nan
        self.worker_of = [-1] * total
        self.fetch_start, self.made = [nan] * total, [nan] * total
        self.arrival, self.wait_start = [nan] * total, [nan] * total
        self.taken = [nan] * total
        self.order: list[int] = []
        self.in_flight = self.peak = 0
        self.in_flight_bytes = self.peak_bytes = 0.0
        self.stepped = self.edges = self.took = 0.0
        self.busy = self.waited = 0.0  # the workers' time
        self.alive = 0.0

    def run(self) -> Outcome:
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
        """One epoch without workers."""
        loop, work = self.loop, self.work
        for batch in range(first, first + self.batches):
            self.wait_start[batch] = self.fetch_start[batch] = loop.now
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
        """One epoch with workers, as `_MultiProcessingDataLoaderIter` does it."""
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
            """`_try_put_index`: the next index to the next worker that may have one more."""
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
            self.wait_start[wanted] = loop.now
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
            if batch != wanted:  # not in order: the wait is that of the batch that came
                self.wait_start[batch] = self.wait_start[wanted]
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
        storage: Place | None = self.storage if read else None
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

    # What is noted

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

    def _outcome(self) -> Outcome:
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
        return Outcome(
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
            timeline=Timeline(
                worker=np.array(self.worker_of, np.int64),
                fetch_start_ns=np.array(self.fetch_start),
                made_ns=np.array(self.made),
                arrival_ns=np.array(self.arrival),
                wait_start_ns=np.array(self.wait_start),
                taken_ns=taken,
                order=order,
            ),
        )

    def _steady(self, taken: Floats, order: npt.NDArray[np.int64]) -> float:
        """Samples per second from the end of the warm-up of each epoch to its last batch."""
        setting = self.setting
        depth = max(setting.num_workers * (setting.prefetch_factor or 1), 1)
        return steady_rate(
            [(taken[part], self.size[part]) for part in np.split(order, self.epochs)],
            depth,
        )


def steady_rate(epochs: list[tuple[Floats, Floats]], depth: int) -> float:
    """Samples per second from batch to batch, the first `depth` batches of each epoch left out.

    `epochs`: when each batch was taken (ns), in order, and how many samples it has. Of an epoch
    that is not twice as long the first half is left out; 0.0 where no two batches are left.
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
