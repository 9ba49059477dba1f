"""balance.json: the number of samples of each global batch that every rank takes.

`lotus run` reads it before the program starts, so this module imports neither numpy nor pandas.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lotus.common import declared, files
from lotus.common.errors import LotusError
from lotus.settings.tuned_file import Target

FORMAT, VERSION = "lotus-balance", 1
DEFAULT = Path("balance.json")
STRATEGIES = ("lotus", "bno", "equal", "random")
_MOST = 16 << 20  # bytes of a document
_BESIDE_PLAN = {"format", "version", "world_size", "global_batch"}  # fields of the file alone
MOST_RANKS = 1 << 16
MOST_SAMPLES = 1 << 40


@dataclass(frozen=True)
class ModelSignature:
    """Identifies the model of a plan. Raises ValueError for invalid values."""

    parameters: int  # number of trained values
    shapes: str  # hexadecimal SHA-256 of the parameters' names and shapes

    def __post_init__(self) -> None:
        _whole(self.parameters, "parameters", 0)
        if not 0 < len(self.shapes) <= 200:
            raise ValueError("shapes must have 1 to 200 characters")


@dataclass(frozen=True)
class SharePlan:
    """The contents of balance.json. Raises ValueError if they are inconsistent.

    `batch_sizes[rank]` is the number of samples of a rank in each global batch; `global_batch` is
    their sum, the samples per step when the plan is applied. It may differ from the traced one, as
    `bno` does not keep it; `notes` and `predicted` then say so. `loader` None: the only loader.
    """

    batch_sizes: tuple[int, ...]
    strategy: str
    loader: Target | None = None
    model: ModelSignature | None = None
    predicted: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < len(self.batch_sizes) <= MOST_RANKS:
            raise ValueError("batch_sizes must have a number for each rank")
        for rank, size in enumerate(self.batch_sizes):
            if size == 0:
                raise ValueError(f"rank {rank} would have no samples: batch_sizes[{rank}] is 0")
            _whole(size, f"batch_sizes[{rank}]", 1)
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy is {self.strategy!r:.50}: not {', '.join(STRATEGIES)}")

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
        "predicted": dict(plan.predicted),
        "notes": list(plan.notes),
    }


def is_plan(path: Path) -> bool:
    """Whether a file declares itself a balance.json; never raises."""
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
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f'its "format" is not "{FORMAT}"')
    if type(content.get("version")) is not int or content["version"] != VERSION:
        raise ValueError(
            f"its version is {content.get('version')!r:.50}, this lotus reads {VERSION}"
        )
    plan = declared.read_as(
        SharePlan, {name: value for name, value in content.items() if name not in _BESIDE_PLAN}
    )
    for name, is_so in (("world_size", plan.world_size), ("global_batch", plan.global_batch)):
        if type(content.get(name)) is not int or content[name] != is_so:
            raise ValueError(
                f'"{name}" is {content.get(name)!r:.50}, but its batch_sizes give {is_so}'
            )
    return plan


def _bytes(path: Path) -> bytes:
    return files.read(path, _MOST + 1, follow=True)


def _whole(value: int, name: str, least: int) -> None:
    if not least <= value <= MOST_SAMPLES:
        raise ValueError(f"{name} is {value!r:.50}: it must be a whole number from {least} on")
