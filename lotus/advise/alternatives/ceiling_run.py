"""A program in which blocks of training were measured, and which is then started once more."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lotus.advise.alternatives import applied_alternatives, tried_alternatives
from lotus.advise.alternatives.tried_alternatives import Alternatives
from lotus.advise.ceilings.ceilings import Ceilings
from lotus.common.errors import LotusError
from lotus.mapping.isolated_runner import AlternativeTrials
from lotus.recording.launcher import ProgramOutcome
from lotus.tune.program.program import Watched
from lotus.tune.session import subprocess_tuning
from lotus.tune.session.program_pipe import PipedProgram


@dataclass(frozen=True)
class CeilingRun:
    """The blocks of a program, and how it ended."""

    command: Sequence[str]
    outcome: ProgramOutcome
    ceilings: Ceilings | None
    watched: Watched | None  # its loader; None: the program did not come to it
    problem: str = ""  # why there are no ceilings, or why they are incomplete
    ended_by_us: bool = False

    @property
    def is_interrupted(self) -> bool:
        """True if Ctrl-C ended the blocks."""
        return self.ceilings is not None and self.ceilings.interrupted

    @property
    def allows_trials(self) -> bool:
        """True if alternatives can be tried: they are useful even without ceilings."""
        return self.watched is not None and self.ended_by_us and not self.is_interrupted

    def try_alternatives(
        self,
        names: Sequence[str],
        skipped: Sequence[str] = (),
        loader: int | str | None = None,
        on_event: Callable[[Mapping[str, Any]], object] | None = None,
    ) -> Alternatives:
        """Start the program again, and try these alternatives on the loader that was measured.

        `loader` is what was given to `measure`; `skipped` names operations that are not run again.
        `on_event` gets an event before each step. Raises LotusError where there was no loader, and
        as `tried_alternatives.attempt` does.
        """
        if self.watched is None:
            raise LotusError(f"alternatives cannot be tried: {self.problem}")
        target = self.watched.loader
        number = loader if isinstance(loader, int) else target.number
        return tried_alternatives.attempt(
            self.command,
            AlternativeTrials(number, names=names, skipped=skipped),
            site=target.call_site,
            storage=self.ceilings is None or self.ceilings.waits_for_storage,
            on_event=on_event,
        )


def measure(
    command: Sequence[str],
    experiment: Callable[[PipedProgram], Ceilings],
    names: Sequence[str] | None = None,
    loader: int | str | None = None,
    watch: int | None = None,
) -> CeilingRun:
    """Start a command, and call `experiment` when it has iterated its loader; then end it.

    `names` are the alternatives that the experiment may put in, None for none. `loader`, `watch`
    and errors are those of `subprocess_tuning.measure`.
    """
    reached: list[Watched] = []

    def measured(program: PipedProgram) -> Ceilings:
        reached.append(program.watched)
        return experiment(program)

    choices = None if names is None else applied_alternatives.choices(names)
    done = subprocess_tuning.measure(command, measured, loader=loader, watch=watch, choices=choices)
    ceilings: Ceilings | None = done.result
    if ceilings is not None and done.outcome.signal == signal.SIGINT:
        ceilings = dataclasses.replace(ceilings, interrupted=True)
    watched = reached[0] if reached else None
    return CeilingRun(command, done.outcome, ceilings, watched, done.problem, done.ended_by_us)
