"""A program to be tuned, as a search sees it: candidate loaders that are measured in its process.

lotus/inside/tune/candidates/trials.py does the work inside the program. `lotus.tune(loader)` calls
it; `lotus.tune.session.subprocess_tuning` reaches it through pipes. A search (search.py) knows only
this protocol, and neither of the two. lotus/inside/tune/candidates/trial_requests.py defines its
requests and replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lotus.inside.tune.candidates.trial_requests import Reply, Request
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Target


class TrialFailed(Exception):
    """A trial did not work, in words that follow "because"; the program is as it was before."""


class TrialsForbidden(TrialFailed):
    """No trial may be made any more in the program's process, in the words of one."""


@dataclass(frozen=True)
class Watched:
    """The loader that is tuned, and what its program did with it before the first trial.

    `waits_s`, `steps_s` and `step_cpu_s` have an element for each batch that was watched: how long
    the program waited for it, how long it took until it asked for the next one, and the CPU time
    of the program's process (not of its workers) meanwhile. `alone_s` and `alone_cpu_s` are those
    of some later steps beside which its workers had nothing to do; none where it has no workers.
    """

    loader: Target
    setting: Setting  # the program's own, with its start method where it has workers
    pid: int
    torch: str
    iterable: bool
    batch_size: int | None  # None: the program makes its batches itself
    batches: int | None  # of an epoch; None: not known
    waits_s: tuple[float, ...] = ()
    steps_s: tuple[float, ...] = ()
    step_cpu_s: tuple[float, ...] = ()
    alone_s: tuple[float, ...] = ()
    alone_cpu_s: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()  # samples of each batch
    startup_s: float | None = None  # from `iter()` to the first batch, of its first iteration
    loop_s: float | None = None  # of an epoch that ended while it was watched, from `iter()`
    accelerator: str | None = None  # "cuda", ...; None: there is none to pin for
    threads: int = 1  # that torch uses in the program's main process
    in_order: bool = True  # whether this torch knows in_order (2.6 and later)
    notes: tuple[str, ...] = ()  # what is unusual, in words
    grown_bytes: int = 0  # that fetching without workers added to the program's own process
    name: str | None = None  # what the program calls the loader, where that tells; a label
    forbidden: str = ""  # why nothing may be tried in its process

    def title(self) -> str:
        """As "train_loader, the loader of Rows (640 samples, RandomSampler) at train.py:12"."""
        return f"{self.name}, {self.loader.words()}" if self.name else self.loader.words()


class Program(Protocol):
    """A program that stands still at a batch of its loader."""

    watched: Watched

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        """Do what a request of trial_requests.py asks for with a normal setting.

        Raises TrialFailed; the candidate is closed then.
        """
