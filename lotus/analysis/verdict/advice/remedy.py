"""The changes that advice makes, as data: so that they can be compared, predicted and tried."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from lotus.analysis.replay.gain_prediction import UNKNOWN, Prediction
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.worker_advice import WorkerAdvice
from lotus.common.torch_defaults import TORCH_PREFETCH

WORKERS, PREFETCH = "num_workers", "prefetch_factor"
PERSISTENT, PINNED = "persistent_workers", "pin_memory"
# "not more": more of it will not help. "other": a change in no direction.
Direction = Literal["more", "fewer", "not more", "on", "off", "other"]
Part = Literal[
    "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "threads", "cores",
    "code", "data",
]  # fmt: skip
_OF_LOADER: tuple[Part, ...] = (
    "num_workers", "prefetch_factor", "persistent_workers", "pin_memory",
)  # fmt: skip
_OPPOSITES = ({"more", "fewer"}, {"more", "not more"}, {"on", "off"})


@dataclass(frozen=True)
class Remedy:
    """A change of parameters of the DataLoader (`setting`) or of environment variables.

    `changes`: what is changed and in which direction, also where no value is named. `place`: the
    code that is changed, as `function (file:line)`; "": none, or not known.
    """

    setting: Mapping[str, int | bool] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    expected: Prediction = UNKNOWN
    changes: Mapping[Part, Direction] = field(default_factory=dict)
    place: str = ""

    @property
    def of_loader(self) -> bool:
        """True if a parameter of the DataLoader is to be changed."""
        return bool(self.setting) or any(
            self.changes.get(name, "not more") != "not more" for name in _OF_LOADER
        )

    def contradicts(self, other: "Remedy") -> bool:
        """Return True if both change a thing to different values or in opposite directions."""
        of_both = self.setting.keys() & other.setting.keys()
        if any(self.setting[name] != other.setting[name] for name in of_both):
            return True
        parts = self.changes.keys() & other.changes.keys()
        return any({self.changes[part], other.changes[part]} in _OPPOSITES for part in parts)

    def or_code(self, place: object = "") -> "Remedy":
        """Return the same remedy, or a change of code."""
        return replace(self, changes={**self.changes, "code": "other"}, place=str(place))

    def with_changes(self, changes: Mapping[Part, Direction]) -> "Remedy":
        """Return the same remedy with these changes as well."""
        return replace(self, changes={**self.changes, **changes})


NOTHING = Remedy()
CODE = NOTHING.or_code()
CODE_NOT_WORKERS = CODE.with_changes({"num_workers": "not more"})
FEWER_WORKERS = Remedy(changes={"num_workers": "fewer"})
MORE_PREFETCH = Remedy(changes={"prefetch_factor": "more"})
DATA = Remedy(changes={"data": "other"})


def set_workers(
    advised: WorkerAdvice, circumstances: Circumstances, waits: bool = False, steady: bool = True
) -> Remedy:
    """Return the remedy of setting the advised number of workers, if there is one.

    `waits`: the cause needs no core; `steady`: a batch takes as long whatever their number.
    """
    count, kept = advised.workers, advised.kept
    changes: dict[Part, Direction] = {"num_workers": advised.change} if advised.change else {}
    if count is None:
        return Remedy(changes=changes)
    expected = (
        circumstances.predict.with_workers(count, kept)
        if steady and circumstances.predict
        else UNKNOWN
    )
    if waits:  # whoever is waited for may answer only so many at once
        expected = replace(expected, at_best=True)
    setting: dict[str, int | bool] = {WORKERS: count}
    if kept:
        setting[PERSISTENT] = True
        changes["persistent_workers"] = "on"
    return Remedy(setting, expected=expected, changes=changes)


def no_workers(circumstances: Circumstances, start_up: bool = False) -> Remedy:
    """Return the remedy of making batches in the main process.

    `start_up`: to start the workers takes far longer than to make all batches.
    """
    expected = circumstances.predict.with_workers(0) if circumstances.predict else UNKNOWN
    if start_up and circumstances.replayed:
        expected = circumstances.replayed.without_start_ups()
    changes: dict[Part, Direction] = {"num_workers": "fewer", "persistent_workers": "off"}
    return Remedy({WORKERS: 0}, expected=expected, changes=changes)


def without_workers(circumstances: Circumstances) -> str:
    """Return the words for a loader without workers, with what torch refuses then."""
    seen = {
        "prefetch_factor": circumstances.prefetch not in (0, TORCH_PREFETCH),
        "persistent_workers": circumstances.persistent,
        "timeout": circumstances.timeout,
        "multiprocessing_context": circumstances.spawned,
    }
    refused = [name for name, is_seen in seen.items() if is_seen]
    return "num_workers=0" + (f", without {', '.join(refused)}" if refused else "")


def set_prefetch(circumstances: Circumstances, prefetch: int) -> Remedy:
    """Return the remedy of another prefetch factor."""
    expected = circumstances.predict.with_prefetch(prefetch) if circumstances.predict else UNKNOWN
    return Remedy({PREFETCH: prefetch}, expected=expected, changes={"prefetch_factor": "more"})


def keep_workers(circumstances: Circumstances) -> Remedy:
    """Return the remedy of keeping workers from one epoch to the next."""
    expected = circumstances.replayed.with_kept_workers() if circumstances.replayed else UNKNOWN
    return Remedy({PERSISTENT: True}, expected=expected, changes={"persistent_workers": "on"})


def set_threads(count: int, variable: str = "OMP_NUM_THREADS") -> Remedy:
    """Return the remedy of fewer threads: by default those of OpenMP, and so of torch."""
    return Remedy(environment={variable: str(count)}, changes={"threads": "fewer"})
