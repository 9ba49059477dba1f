"""Defines the requests that lotus sends to a program which is paused for trials, and the replies.

They are defined here and nowhere else; both sides follow the table `REQUESTS`. lotus makes a
message of a request (`message_of`) and a reply of the value that comes back (`reply_from`). The
program calls the method that has the request's name and returns such a value (`serve`). Messages
and values are what JSON can hold: they go through a pipe, or straight into this process.

A request is about one setting, a dict as lotus.settings.space.Setting.as_json in the
program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Reply = TypeVar("Reply")


SLOW_BATCHES = 4  # that a block has at least if the loader is slow


@dataclass(frozen=True)
class Opened:
    """A candidate loader has given its first batch."""

    first_batch_s: float  # from `iter()` to the first batch
    iter_s: float  # the part of it in `iter()`: the start of the workers
    workers: tuple[int, ...]  # their process numbers


@dataclass(frozen=True)
class TrialBlock:
    """Some batches of a candidate loader. The tuples have an element for each batch."""

    waits_s: tuple[float, ...]  # in `next`
    steps_s: tuple[float, ...]  # of what replaces the training step; 0 without
    sizes: tuple[int, ...]  # samples
    worker_cpu_s: float  # CPU time of all workers meanwhile (0 workers: of the fetches)
    worker_queued_s: float  # how long they were ready to run and had no core
    main_cpu_s: float  # CPU time of the main process in `next` (0 workers: 0)
    batch_bytes: int  # the largest batch: see ResourceCosts of lotus.tune.search
    shared_bytes: int
    pipe_bytes: int
    tensors: int
    worker_bytes: int  # private memory of the largest worker at the end
    main_bytes: int  # resident memory of the main process at the end
    read_bytes: int = 0  # read by the workers from storage (not from the page cache)

    @property
    def seconds(self) -> float:
        """Seconds in `next` and in steps."""
        return sum(self.waits_s) + sum(self.steps_s)

    @property
    def samples_per_s(self) -> float:
        """Samples a second over the block; 0 where it took no time."""
        return sum(self.sizes) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class EpochComparison:
    """The comparison of an epoch's samples with another number of workers."""

    why: str  # why it has not, or why that is not known; "" where it has
    # (workers, samples, batches) of each epoch that was counted, that of the own setting first
    epochs: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class TrainedBatches:
    """Batches on which the program has trained with a setting. The tuples have an element for each.

    Batches that were in flight before are not counted, nor is the first one after these.
    """

    waits_s: tuple[float, ...]  # in `next`
    steps_s: tuple[float, ...]  # training steps
    sizes: tuple[int, ...]  # samples
    startup_s: float | None  # the wait for the first batch, which includes the start of its workers
    passed: int  # batches that the program took meanwhile, counted or not
    over: bool  # the epoch has ended
    refused: str = ""  # why the setting could not be applied after all


class Request(Generic[Reply]):
    """A request that is answered with a `Reply`."""


@dataclass(frozen=True)
class Open(Request[Opened]):
    """Make a candidate loader and take its first batch, within `limit_s`."""

    limit_s: float


@dataclass(frozen=True)
class Measure(Request[TrialBlock]):
    """Measure batches of an open candidate for `seconds`, and at least `least` of them.

    First `discard` batches are taken and not counted, without steps between them: None takes as
    many as may lie ready, workers x prefetch. With `step` work that takes as long as the training
    step, and as much CPU time, follows each counted batch. All candidates read the same indices.
    `limit_s` is how long a batch may take; it also ends the block, with fewer batches than `least`
    if any were counted until then. Once `slow_s` are over, which include the uncounted batches, it
    discards and counts whole bursts only, one batch of each worker: no more are discarded, and
    `SLOW_BATCHES` are enough. A candidate that fails is closed.
    """

    seconds: float
    least: int
    step: bool
    limit_s: float
    discard: int | None = None
    slow_s: float | None = None


@dataclass(frozen=True)
class Close(Request[float]):
    """End a candidate with its processes and shared memory. The reply: the seconds that it took."""


@dataclass(frozen=True)
class CompareEpochs(Request[EpochComparison]):
    """Compare an epoch of an iterable data set with one of the own setting, in about `limit_s`."""

    limit_s: float


@dataclass(frozen=True)
class Train(Request[TrainedBatches]):
    """Let the program train on with a setting until so many `batches` are counted.

    Before them, `discard` are not counted. It ends after `seconds` too, or with the epoch. All
    candidates have to be closed.
    """

    batches: int
    discard: int
    seconds: float


@dataclass(frozen=True)
class Feed(Request[TrainedBatches]):
    """Let the program train on with data of one kind, until so many `batches` are counted.

    `kind`: see lotus/inside/tune/feeds/fed_training.py. It ends after `seconds` too. Batches
    that were in flight, and a few more, are not counted. A wait of "free" counts as 0.
    """

    kind: str
    batches: int
    seconds: float


# Name in messages, and of the method that does it: request, reply.
REQUESTS: dict[str, tuple[type[Request[Any]], type]] = {
    "open": (Open, Opened),
    "measure": (Measure, TrialBlock),
    "close": (Close, float),
    "compare_epochs": (CompareEpochs, EpochComparison),
    "train": (Train, TrainedBatches),
    "feed": (Feed, TrainedBatches),
}
_NAMES = {request: name for name, (request, _) in REQUESTS.items()}
# Other values of `do`, which say how the program continues after the trials.
_ENDS = ("end", "apply", "leave")


def message_of(request: Request[Any], setting: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a request about a setting."""
    return {"do": _NAMES[type(request)], "setting": setting, **vars(request)}


def request_from(message: dict[str, Any]) -> tuple[dict[str, Any], Request[Any]]:
    """(Setting, request) of a message."""
    arguments = {name: value for name, value in message.items() if name not in ("do", "setting")}
    return message["setting"], REQUESTS[message["do"]][0](**arguments)


def ends_trials(message: dict[str, Any]) -> bool:
    """Return whether the program continues after a message, for good or to train."""
    return message["do"] in _ENDS or trains_on(message)


def trains_on(message: dict[str, Any]) -> bool:
    """Return whether the program trains on after a message, and then pauses again."""
    return message["do"] in (_NAMES[Train], _NAMES[Feed])


def entry_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return the settings' entry of a message after which the program continues."""
    if message["do"] == "apply":
        return {name: message[name] for name in ("loader", "setting", "iterable_safe")}
    return {"loader": {}, "setting": message["setting"], "iterable_safe": False}  # for this one


def serve(trials: Any, message: dict[str, Any]) -> Any:
    """Do what a message requests by the method of `trials`. Returns the value of the reply."""
    setting, request = request_from(message)
    return value_of(getattr(trials, message["do"])(setting, request))


def value_of(reply: Any) -> Any:
    """Return a reply as JSON can hold it."""
    return reply if isinstance(reply, float) else dict(vars(reply))


def reply_from(request: Request[Reply], value: Any) -> Reply:
    """Return the reply to a request. Raises AttributeError, TypeError or ValueError for another."""
    kind: Any = REQUESTS[_NAMES[type(request)]][1]
    if kind is not float:
        fields = {name: _tuples(part) for name, part in value.items()}
        return cast("Reply", kind(**fields))
    return cast("Reply", float(value))


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
