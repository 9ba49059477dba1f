"""A program for searches of settings: a formula with a clock of its own, and no processes."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, cast

from lotus.common.machine.memory_headroom import Headroom
from lotus.inside.tune.candidates.trial_requests import (
    CompareEpochs,
    EpochComparison,
    Measure,
    Open,
    Opened,
    Reply,
    Request,
    TrialBlock,
)
from lotus.settings.space import Measurement, Setting
from lotus.settings.tuned_file import Target
from lotus.tune.program.program import TrialError, Watched
from lotus.tune.search.limits.machine_limits import MachineLimits
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.search import SearchPlan, search
from lotus.tune.strategies.problem import Problem

MIB = 1 << 20


@dataclasses.dataclass
class Fake:
    """A program whose loader takes as long as a formula says; it counts what is done to it."""

    own: Setting
    cores: float = 4.0
    cpu_s: float = 0.020  # of a worker, a batch
    wait_s: float = 0.0
    step_s: float = 0.001
    slower_step: float = 1.0  # times as long beside workers
    fighting: float = 1.0  # times as long in a worker, unless its threads are limited to one
    start_s: float = 0.05  # of each worker
    noise: float = 0.01
    batches: int | None = 1000
    iterable: bool = False
    accelerator: str | None = None
    same: str = ""
    counted: tuple[tuple[int, int, int], ...] = ()
    worker_bytes: int = 100 * MIB
    batch_bytes: int = 4 * MIB
    fails: dict[int, str] = dataclasses.field(default_factory=dict)  # by workers
    read_once: int = 0  # bytes a batch that the first candidate reads from storage
    slower_watched: float = 1.0
    interrupt_at: int = -1  # which block Ctrl-C comes in

    def __post_init__(self) -> None:
        self.now = 100.0
        self.chance = random.Random(1)
        self.live: set[Setting] = set()
        self.most_live: list[set[Setting]] = []
        self.opened: list[Setting] = []
        self.compared: list[Setting] = []
        self.blocks: list[tuple[Setting, bool]] = []
        self.limits_s: list[tuple[float, float]] = []
        setting = dataclasses.replace(
            self.own, start_method="fork" if self.own.num_workers else None
        )
        itself = self.batch_s(self.own, step=True) * self.slower_watched
        self.watched = Watched(
            loader=Target(dataset="Pictures", call_site="train.py:12"),
            setting=setting,
            pid=1,
            torch="2.14.1",
            iterable=self.iterable,
            batch_size=32,
            batches=self.batches,
            waits_s=(itself - self.step_s,) * 40,
            steps_s=(self.step_s,) * 40,
            step_cpu_s=(self.step_s,) * 40,
            sizes=(32,) * 40,
            startup_s=self.first_s(self.own),
            accelerator=self.accelerator,
        )

    def batch_s(self, setting: Setting, step: bool) -> float:
        taken = self.taken_s(setting, step)
        if setting.num_workers == 0:
            return self.cpu_s + self.wait_s + taken
        fetch_s = self.cpu_s + self.wait_s
        if self._fights(setting):
            fetch_s *= self.fighting
        made = max(fetch_s / setting.num_workers, self.cpu_s / self.cores)
        return max(made, taken + 0.0001)

    def _fights(self, setting: Setting) -> bool:
        return self.fighting > 1 and setting.threads != 1 and setting.num_workers > 0

    def taken_s(self, setting: Setting, step: bool) -> float:
        slower = self.slower_step if setting.num_workers else 1.0
        return self.step_s * slower if step else 0.0

    def first_s(self, setting: Setting) -> float:
        return self.start_s * setting.num_workers + self.cpu_s + self.wait_s

    def _pass(self, seconds: float, limit_s: float) -> None:
        self.now += min(seconds, limit_s)
        if seconds > limit_s:
            raise TrialError(f"it gave no batch within {limit_s:g} s")

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        reply: Any
        if isinstance(request, Open):
            reply = self.open(setting, request.limit_s)
        elif isinstance(request, Measure):
            reply = self.measure(setting, request)
        elif isinstance(request, CompareEpochs):
            self.compared.append(setting)
            reply = EpochComparison(self.same, self.counted)
        else:
            reply = self.close(setting)
        return cast("Reply", reply)

    def open(self, setting: Setting, limit_s: float) -> Opened:
        assert setting == setting.normal()
        assert setting not in self.live
        self.limits_s.append((self.now, limit_s))
        self.opened.append(setting)
        self._pass(self.first_s(setting), limit_s)
        if setting.num_workers in self.fails:
            raise TrialError(self.fails[setting.num_workers])
        self.live.add(setting)
        self.most_live.append(set(self.live))
        iter_s = self.start_s * setting.num_workers
        return Opened(self.first_s(setting), iter_s, tuple(range(setting.num_workers)))

    def measure(self, setting: Setting, request: Measure) -> TrialBlock:
        step, limit_s = request.step, request.limit_s
        assert setting in self.live
        if len(self.blocks) == self.interrupt_at:
            self.blocks.append((setting, step))
            raise KeyboardInterrupt
        self.blocks.append((setting, step))
        self.limits_s.append((self.now, limit_s))
        batch_s = self.batch_s(setting, step)
        count = max(request.least, int(request.seconds / batch_s))
        taken = self.taken_s(setting, step)
        waits = [
            max(batch_s * self.chance.gauss(1.0, self.noise) - taken, 0.0) for _ in range(count)
        ]
        ahead = setting.num_workers * (setting.prefetch_factor or 0)
        try:
            takes = ahead * self.batch_s(setting, False) + sum(waits) + taken * count
            self._pass(takes, limit_s)
        except TrialError:
            self.live.remove(setting)
            raise
        return TrialBlock(
            waits_s=tuple(waits),
            steps_s=(taken,) * count,
            sizes=(32,) * count,
            worker_cpu_s=self.cpu_s * count,
            worker_queued_s=2 * sum(waits) * setting.num_workers if self._fights(setting) else 0.0,
            main_cpu_s=0.0001 * count,
            batch_bytes=self.batch_bytes,
            shared_bytes=self.batch_bytes if setting.num_workers else 0,
            pipe_bytes=1000 if setting.num_workers else 0,
            tensors=2,
            worker_bytes=self.worker_bytes,
            main_bytes=500 * MIB,
            read_bytes=self.read_once * count if setting == self.opened[0] else 0,
        )

    def close(self, setting: Setting) -> float:
        self.live.remove(setting)
        took = 0.01 * setting.num_workers
        self.now += took
        return took


def room(memory: int = 64 << 30, shm: int = 32 << 30, cores: float = 4.0) -> MachineLimits:
    """A machine with so much that is free, in bytes."""
    return MachineLimits(
        cores,
        f"{cores:g} CPUs",
        Headroom(memory, f"{memory >> 20} MiB are free"),
        Headroom(shm, f"/dev/shm has {shm >> 20} MiB"),
        100_000,
    )


class Asks:
    """A strategy that asks for what it is given."""

    name = "listed"

    def __init__(self, *settings: Setting) -> None:
        self.left = [setting.normal() for setting in settings]
        self.measurements: list[Measurement] = []
        self.problem: Problem | None = None

    def __call__(self, problem: Problem) -> Asks:
        self.problem = problem
        return self

    def ask(self) -> Setting | None:
        return self.left[0] if self.left else None

    def tell(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        if self.left and measurement.setting == self.left[0]:
            self.left.pop(0)

    def best(self) -> Measurement | None:
        worked = [measurement for measurement in self.measurements if not measurement.failed]
        return max(worked, key=lambda trial: trial.samples_per_s, default=None)

    def reason(self) -> str:
        return "it was listed"


def find(program: Fake, *settings: Setting, **options: Any) -> Result:
    """Search, by a strategy that asks for these settings where the options name no other."""
    limits = options.pop("limits", None) or room(cores=program.cores)
    on_progress = options.pop("on_progress", None)
    plan = SearchPlan(**{"strategy": Asks(*settings), **options})
    return search(program, plan, on_progress=on_progress, limits=limits, clock=lambda: program.now)


def closed_and_in_time(program: Fake, budget_s: float) -> None:
    """Assert that no candidate is left open and none was waited for beyond the budget."""
    assert not program.live
    for now, limit_s in program.limits_s:
        left = 100.0 + budget_s - now
        assert min(10.0, left + 10.0) - 1e-9 <= limit_s <= left + 10.0 + 1e-9
    assert program.now - 100.0 <= budget_s + 10.0
