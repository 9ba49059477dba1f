"""Detects how libraries use the batches of an iteration: sanity checks, reading ahead."""

from __future__ import annotations

from ...common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.")
_MOST_AHEAD = 1_000_000


def facts_of_caller(loader: Any, frame: FrameType | None) -> dict[str, object]:
    """Return facts about the code that iterates the loader, from `frame` outwards; often none.

    `sanity`: the batches are for Lightning's sanity check before training. `ahead`: the number of
    batches that are taken before the program gets the first one; they are unused if it stops early.
    """
    facts: dict[str, object] = {}
    while frame is not None:
        name, code = frame.f_globals.get("__name__"), frame.f_code
        if type(name) is not str:
            pass
        elif name == "accelerate.data_loader":
            # Those of its iterators that read one batch ahead to detect the end.
            if code.co_name == "__iter__" and "next_batch" in code.co_varnames:
                facts.setdefault("ahead", 1)
        elif name.startswith(_LIGHTNING):
            if code.co_name == "_run_sanity_check":
                facts["sanity"] = True
            elif code.co_name == "__iter__" and name.endswith(".fetchers"):
                ahead = _ahead_of(frame.f_locals.get("self"), loader)
                if ahead:
                    facts.setdefault("ahead", ahead)
        frame = frame.f_back
    return facts


def _ahead_of(fetcher: object, loader: Any) -> int:
    """Return how many batches Lightning's fetcher reads ahead: none if the length is known."""
    ahead = attributes(fetcher).get("prefetch_batches")
    if type(ahead) is not int or not 0 < ahead < _MOST_AHEAD or _has_length(loader):
        return 0
    return ahead


def _has_length(loader: Any) -> bool:
    own_attributes = attributes(loader)
    if own_attributes.get("_dataset_kind") == 1:
        return hasattr(type(own_attributes.get("dataset")), "__len__")
    batches = own_attributes.get("batch_sampler")
    chosen = own_attributes.get("sampler") if batches is None else batches
    inner = attributes(chosen).get("sampler", chosen)
    return hasattr(type(chosen), "__len__") and hasattr(type(inner), "__len__")
