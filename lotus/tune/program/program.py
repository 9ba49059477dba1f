"""The interface between a search and the program being tuned, which measures candidate loaders.

lotus/inside/tune/candidates/trials/trials.py does the work inside the program. `lotus.tune(loader)`
calls it; `lotus.tune.session.subprocess_tuning` reaches it through pipes. A search (search.py)
knows only this protocol, and neither of the two. lotus/inside/tune/candidates/trial_requests.py
defines its requests and replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lotus.inside.tune.candidates.trial_requests import Reply, Request
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Target


class TrialError(Exception):
    """A trial failed; the message continues "because". The program is unchanged."""


class TrialsForbiddenError(TrialError):
    """A trial failed, and no further trial may be made in the program's process."""


@dataclass(frozen=True)
class Watched:
    """The loader being tuned, and observations of it before the first trial.

    `waits_s`, `steps_s` and `step_cpu_s` have an element for each watched batch: the time that the
    program waited for it, the time until it requested the next one, and the CPU time of its process
    (without workers) meanwhile. `alone_s` and `alone_cpu_s` are the same for some later steps
    during which the workers were idle; they are empty without workers.
    """

    loader: Target
    setting: Setting  # the program's own, with its start method if it has workers
    pid: int
    torch: str
    iterable: bool
    batch_size: int | None  # None: the program makes its batches itself
    batches: int | None  # per epoch; None: not known
    waits_s: tuple[float, ...] = ()
    steps_s: tuple[float, ...] = ()
    step_cpu_s: tuple[float, ...] = ()
    alone_s: tuple[float, ...] = ()
    alone_cpu_s: tuple[float, ...] = ()
    helpers_s: float = 0.0  # CPU time of other threads than the main one in all these steps
    sizes: tuple[int, ...] = ()  # samples of each batch
    startup_s: float | None = None  # from `iter()` to the first batch of the first iteration
    later_startup_s: float | None = None  # the shortest of later iterations, if there were any
    loop_s: float | None = None  # of an epoch that ended while it was watched, from `iter()`
    accelerator: str | None = None  # "cuda", ...; None: there is none to pin memory for
    threads: int = 1  # of torch in the program's main process
    in_order: bool = True  # this torch supports in_order (2.6 and later)
    endless: bool = False  # its epoch begins again at its end, while settings are checked
    notes: tuple[str, ...] = ()  # remarks on anything unusual
    grown_bytes: int = 0  # growth of the program's own process by fetching without workers
    name: str | None = None  # the program's variable name of the loader, as a label
    workers_needed_at: str = ""  # `file:line` of code that works in workers only; "": none seen
    forbidden: str = ""  # why nothing may be tried in the program's process

    def title(self) -> str:
        """Return, for example, "train_loader, the loader of Rows (640 samples) at train.py:12"."""
        return f"{self.name}, {self.loader.words()}" if self.name else self.loader.words()


class PausedProgram(Protocol):
    """A program that is paused at a batch of its loader."""

    watched: Watched

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        """Perform a request of trial_requests.py with a normalised setting.

        Raises TrialError, after which the candidate is closed.
        """
