"""balance.json: the number of samples of each global batch that every rank takes.

`lotus run` reads it before the program starts, so this module imports neither numpy nor pandas.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from lotus.common.errors import LotusError
from lotus.common.storage import declared, files
from lotus.common.storage.declared import Length, OneOf, Range
from lotus.settings.tuned_file import Target

FORMAT, VERSION = "lotus-balance", 1
DEFAULT = Path("balance.json")
STRATEGIES = ("lotus", "bno", "equal", "random")
_MOST = 16 << 20  # bytes of a document
MOST_RANKS = 1 << 16
MOST_SAMPLES = 1 << 40


@dataclass(frozen=True)
class ModelSignature:
    """Identifies the model of a plan.

    Raises ValueError for invalid values.
    """

    parameters: Annotated[Annotated[int, Range(0, MOST_SAMPLES)], "Numbers that are trained."]
    shapes: Annotated[
        Annotated[str, Length(1, 200)], "SHA-256 of the parameters' names and shapes."
    ]

    def __post_init__(self) -> None:
        declared.check(self)


@dataclass(frozen=True)
class PredictedStep:
    """A step of the whole job."""

    seconds: Annotated[float | None, "Mean, seconds."]
    low: Annotated[float | None, "Lower end of its 95 % interval, seconds."]
    high: Annotated[float | None, "Upper end, seconds."]


@dataclass(frozen=True)
class PlanPrediction:
    """The expected effect of a plan, for people to read."""

    step_before_s: Annotated[PredictedStep | None, "A step before, seconds."] = None
    step_after_s: Annotated[PredictedStep | None, "A step after, seconds."] = None
    measured_step_s: Annotated[float | None, "A step as it was measured, seconds."] = None
    times_the_samples_per_second: Annotated[
        float | None, "Samples a second after, over before."
    ] = None
    global_batch_before: Annotated[int | None, "Samples of all ranks in a step before."] = None
    batch_sizes_before: Annotated[
        tuple[Annotated[float | None, "Samples."], ...],
        "Samples of each rank in a step before.",
    ] = ()


@dataclass(frozen=True)
class PlanHead:
    """The plan's facts in a balance.json. Raises ValueError for a layout of another lotus."""

    format: Annotated[Annotated[str, OneOf((FORMAT,))], "What it is."]
    version: Annotated[int, "Number of this layout."]
    world_size: Annotated[int, "Ranks."]
    global_batch: Annotated[int, "Samples of all ranks in a step."]

    def __post_init__(self) -> None:
        declared.check(self)
        if self.version != VERSION:
            raise ValueError(f"its version is {self.version!r:.50}, this lotus reads {VERSION}")


@dataclass(frozen=True)
class SharePlan:
    """The number of samples of each global batch that every rank takes.

    It is the content of balance.json, as lotus balance writes and lotus run reads it.

    `batch_sizes[rank]` is the number of samples of a rank in each global batch; `global_batch` is
    their sum, the samples per step when the plan is applied. It may differ from the traced one, as
    `bno` does not keep it; `notes` and `predicted` then say so. `loader` None: the only loader.
    Raises ValueError for values that no plan can have.
    """

    batch_sizes: Annotated[
        Annotated[
            tuple[Annotated[int, Range(1, MOST_SAMPLES), "Samples."], ...], Length(1, MOST_RANKS)
        ],
        "Samples of each rank in a step.",
    ]
    strategy: Annotated[Annotated[str, OneOf(STRATEGIES)], "What chose them."]
    loader: Annotated[Target | None, "Which loader; null: the program's only one."] = None
    model: Annotated[ModelSignature | None, "Which model; null: not known."] = None
    predicted: Annotated[PlanPrediction, "What it should bring, for people to read."] = (
        PlanPrediction()
    )
    notes: Annotated[tuple[Annotated[str, "A remark."], ...], "Remarks."] = ()

    def __post_init__(self) -> None:
        if 0 in self.batch_sizes:
            raise ValueError(f"rank {self.batch_sizes.index(0)} would have no samples")
        declared.check(self)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.batch_sizes)

    @property
    def global_batch(self) -> int:
        """Number of samples that all ranks take in a step."""
        return sum(self.batch_sizes)


def write(path: Path, plan: SharePlan) -> None:
    """Write a plan atomically. Raises LotusError."""
    files.write_json(path, document(plan))


def document(plan: SharePlan) -> dict[str, Any]:
    """Return a plan in the format of balance.json."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "world_size": plan.world_size,
        "global_batch": plan.global_batch,
        "batch_sizes": list(plan.batch_sizes),
        "strategy": plan.strategy,
        "loader": None if plan.loader is None else asdict(plan.loader),
        "model": None if plan.model is None else asdict(plan.model),
        "predicted": files.json_value(asdict(plan.predicted)),
        "notes": list(plan.notes),
    }


def is_plan(path: Path) -> bool:
    """Return True if a file declares itself a balance.json; never raise."""
    try:
        content = json.loads(_bytes(path))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def read(path: Path) -> SharePlan:
    """Read a plan. Raises LotusError if the file is missing or not valid."""
    try:
        data = _bytes(path)
    except OSError as error:
        raise LotusError(
            f"cannot read {path}: {error.strerror}; such a file is written by: "
            f"lotus balance RUN -o {path.name}"
        ) from None
    try:
        return parse(files.json_of(data, _MOST))
    except ValueError as error:
        text = "".join(char if char.isprintable() else "?" for char in str(error))
        raise LotusError(
            f"{path} is not a plan of lotus balance: {text[:500]}; such a file is written by: "
            f"lotus balance RUN -o {path.name}"
        ) from None


def parse(content: object) -> SharePlan:
    """Return the plan in the content of a balance.json. Raises ValueError."""
    head, fields = declared.read_head(PlanHead, content)
    plan = declared.read_as(SharePlan, fields)
    for name in ("world_size", "global_batch"):
        value, is_so = getattr(head, name), getattr(plan, name)
        if value != is_so:
            raise ValueError(f'"{name}" is {value!r:.50}, but its batch_sizes give {is_so}')
    return plan


def _bytes(path: Path) -> bytes:
    return files.read(path, _MOST + 1, follow=True)
