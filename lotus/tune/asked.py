"""A Program of which every trial is a question to lotus/inside/candidate.py, answered in dicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lotus.settings import Target
from lotus.tune.space import Setting
from lotus.tune.trying import Block, Opened, Same, TrialFailed, Watched


class AskedProgram(ABC):
    """A lotus.tune.trying.Program; whoever inherits says in `_do` how a question gets there."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.workers: dict[Setting, list[int]] = {}  # process numbers of each setting's

    @abstractmethod
    def _do(self, what: str, setting: Setting, **arguments: object) -> Any:
        """What the method `what` of Candidates returns; raises TrialFailed."""

    def open(self, setting: Setting, limit_s: float) -> Opened:
        opened = Opened(**tuples(self._do("open", setting, limit_s=limit_s)))
        self.workers.setdefault(setting.normal(), []).extend(opened.workers)
        return opened

    def block(
        self,
        setting: Setting,
        *,
        seconds: float,
        least: int,
        step: bool,
        limit_s: float,
        discard: int | None = None,
    ) -> Block:
        arguments = {"seconds": seconds, "least": least, "step": step, "limit_s": limit_s}
        return Block(**tuples(self._do("block", setting, discard=discard, **arguments)))

    def close(self, setting: Setting) -> float:
        return float(self._do("close", setting))

    def same_samples(self, setting: Setting, limit_s: float) -> Same:
        told = tuples(self._do("same_samples", setting, limit_s=limit_s))
        counted = tuple((int(one[0]), int(one[1]), int(one[2])) for one in told["epochs"])
        return Same(str(told["why"]), counted)


def watched_from(told: dict[str, Any]) -> Watched:
    """What `Candidates.describe`, or the agent, tells of a loader."""
    rest = {name: value for name, value in told.items() if name not in ("loader", "setting")}
    target, own = Target(**told["loader"]), Setting.from_json(told["setting"])
    return Watched(loader=target, setting=own, **tuples(rest))


def tuples(told: object) -> dict[str, Any]:
    """JSON's lists are tuples in our types. Raises TrialFailed."""
    if not isinstance(told, dict):
        raise TrialFailed("what came of it makes no sense")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
