"""Finds the loader settings that feed training fastest: search, strategies, simulation.

`lotus.tune(loader, step=...)` searches in the program's own process by calling the package itself.
A function `lotus.tune` would hide the package until anything imports one of its modules, and be
hidden by it afterwards; so this module's class has a `__call__`.
"""

import sys
from types import ModuleType

TYPE_CHECKING = False  # as in `typing`, whose import costs; most users of this package need no more
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from lotus.tune.search.outcome.result import Result


class Package(ModuleType):
    """The type of `lotus.tune`: a package that can be called."""

    def __call__(
        self,
        loader: "Any",
        step: "float | Callable[[Any], object] | None" = None,
        budget: float = 60.0,
        strategy: str = "lotus",
        objective: str | None = None,
        vary: "Collection[str]" = (),
        seed: int = 0,
    ) -> "Result":
        """Search the settings of a `torch.utils.data.DataLoader` for about `budget` seconds.

        `step` follows each batch. It is a function of the batch, such as a training step, or a
        duration in seconds. A function is really called, thousands of times, and so trains what it
        trains. A duration is spent sleeping if an accelerator is in use, else computing on one
        core. None measures the throughput of the loader alone.

        `objective` is "train", with steps, or "throughput", without; the default depends on `step`.
        `vary` adds "start_method", "in_order" or "threads" to the varied parameters. The
        threads of torch in this process stay as they are.

        The loader is not changed: `result.loader()` makes a copy with the best setting,
        `result.explain()` describes the result, `result.trials` has all measurements. Ctrl-C
        returns the best setting so far. Raises LotusError if the loader cannot be tuned or an
        argument is not valid.
        """
        from lotus.tune.session.local_tuning import tune

        return tune(
            loader,
            step=step,
            budget=budget,
            strategy=strategy,
            objective=objective,
            vary=vary,
            seed=seed,
        )


sys.modules[__name__].__class__ = Package


def __getattr__(name: str) -> object:
    if name != "Result":
        raise AttributeError(f"module 'lotus.tune' has no attribute {name!r}")
    from lotus.tune.search.outcome.result import Result  # which imports pandas

    return Result
