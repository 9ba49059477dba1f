"""Finds the loader settings that feed a training fastest: settings, strategies, simulation.

`lotus.tune(loader, step=...)` searches in the program's own process: the package itself is called.
A function of that name in `lotus` would be hidden by this package as soon as anything imports
`lotus.tune.simulation.loader_simulation`, and hide it until then; so the module has a class with a
`__call__`.
"""

import sys
from types import ModuleType

TYPE_CHECKING = False  # as in `typing`, whose import costs; most users of this package need no more
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from lotus.tune.search.result import Result


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
        """Search the settings of a `torch.utils.data.DataLoader`, in about `budget` seconds.

        `step` is what follows each batch: a function that takes the batch, such as a training step
        — it is really called, thousands of times, so what it trains is trained by that — or the
        seconds that a step takes, or None: then the loader's own throughput is what counts, which
        is what `objective="throughput"` asks for ("train": with steps). Seconds are spent asleep
        where there is an accelerator in use, and computing on one core where there is none.
        `vary` adds "start_method", "in_order", "threads" to what is varied.

        The loader stays as it was: `result.loader()` makes another. `result.explain()` says what
        was found, `result.trials` is every measurement. Ctrl-C returns the best until then.
        Raises LotusError where the loader or what is asked for cannot be tuned.
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
    from lotus.tune.search.result import Result  # which imports pandas

    return Result
