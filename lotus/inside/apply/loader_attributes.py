"""The attributes of a loader that make up its setting: read, worked out for another, put on it."""

import sys

from ..common.loader_description import is_iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SIMPLE = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order")
_TORCH_PREFETCH = 2


class Refused(Exception):
    """Why a setting is not put on a loader, in words that follow "because"."""


def attributes(loader: "Any") -> "dict[str, Any]":
    """What it has now, as `assign` takes it."""
    values = {name: getattr(loader, name) for name in _SIMPLE if hasattr(loader, name)}
    return {**values, "multiprocessing_context": loader.multiprocessing_context}


def resolve(entry: "dict[str, Any]", loader: "Any", before: "dict[str, Any]") -> "dict[str, Any]":
    """The attributes that a setting gives a loader. Raises Refused.

    `entry`: the `setting` and whether it is `iterable_safe`, shown to keep an iterable data set's
    samples; with `keep`, what the setting does not name stays. `before`: what `attributes` found.
    """
    setting = entry["setting"]
    if entry.get("keep"):
        setting = {**{name: before[name] for name in _SIMPLE if name in before}, **setting}
    workers = setting["num_workers"]
    after = {**before, "num_workers": workers, "pin_memory": setting.get("pin_memory", False)}
    if is_iterable(loader) and workers != before["num_workers"] and not entry["iterable_safe"]:
        raise Refused(
            f"its data set is iterable, so {workers} workers instead of {before['num_workers']} "
            "may repeat or lose samples, and it was not shown that they do not"
        )
    if not workers:
        if loader.timeout > 0:
            raise Refused(f"a timeout ({loader.timeout} s) needs workers, and the setting has none")
        after.update(prefetch_factor=None, persistent_workers=False, multiprocessing_context=None)
        return after
    after["prefetch_factor"] = setting.get("prefetch_factor") or _TORCH_PREFETCH
    after["persistent_workers"] = setting.get("persistent_workers", False)
    in_order = setting.get("in_order")
    if "in_order" in before and in_order is not None:
        after["in_order"] = in_order
    elif in_order is False:
        version = sys.modules["torch"].__version__
        raise Refused(f"in_order=False came with torch 2.6, this is {version}")
    method = setting.get("start_method")
    if method is not None:
        multiprocessing: Any = sys.modules["multiprocessing"]
        if method not in multiprocessing.get_all_start_methods():
            raise Refused(f"this platform cannot start processes by {method}")
        after["multiprocessing_context"] = method
    return after


def assign(loader: "Any", attributes: "dict[str, Any]") -> None:
    """Put them on it."""
    # Past DataLoader.__setattr__, which keeps some from being set once a loader is made.
    for name, value in attributes.items():  # the context last: it needs workers
        if name == "multiprocessing_context" and value is None:
            loader.__dict__["_DataLoader__multiprocessing_context"] = None
        else:
            object.__setattr__(loader, name, value)


def unwarned(make: "Callable[[Any], Any]") -> "Callable[[Any], Any]":
    """A function that makes a loader's iterator without torch's warning of more workers than cores.

    The program did not ask for them, and may have made errors of warnings.
    """
    from ..common.guard import hook

    def call(loader: "Any") -> "Any":
        vars(loader)["check_worker_number_rationality"] = bool
        try:
            return make(loader)
        finally:
            del vars(loader)["check_worker_number_rationality"]

    return hook(call)


def start_method(loader: "Any") -> str:
    """How workers will be started; does not settle what the program may still choose."""
    multiprocessing: Any = sys.modules["multiprocessing"]
    context = loader.multiprocessing_context or multiprocessing
    method = context.get_start_method(allow_none=True)
    return str(method or multiprocessing.get_all_start_methods()[0])
