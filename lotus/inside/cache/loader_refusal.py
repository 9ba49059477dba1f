"""The reasons for which the samples of a loader cannot be cached."""

from __future__ import annotations

from ..common.guard import ask
from ..common.loaders.loader_description import is_iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def refusal(loader: Any) -> str | None:
    """Return why samples of a loader cannot be cached, as a clause; None: they may."""
    dataset = loader.dataset
    if is_iterable(loader):
        return "its data set is iterable: a sample has no index by which it could be known"
    if loader.batch_sampler is None:
        return "it has no batch size: its data set makes whole batches"
    own = getattr(type(dataset), "__getitems__", None)
    if own is not None and not str(own.__module__).startswith("torch.utils.data"):
        return "its data set has __getitems__, which makes whole batches"
    length = ask(len, dataset)
    if type(length) is not int or length < 1:
        return "its data set has no length"
    return None
