"""Checks whether a DistributedDataParallel model supports weighted or less frequent averaging."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# Communication hooks that average the gradients of all ranks, as torch does without a hook.
_AVERAGING = (
    "allreduce_hook",
    "fp16_compress_hook",
    "bf16_compress_hook",
    "BuiltinCommHookType.",
    "_reducer_allreduce_and_upcast_hook",  # DistributedDataParallel(mixed_precision=...)
)


def fingerprint(model: "Any") -> "dict[str, Any]":
    """Return the number of trained `parameters` and a hash of their `shapes`.

    The hash is the SHA-256 of one line per trained parameter, sorted by name: its name and sizes,
    such as "layer.weight 10x5".
    """
    import hashlib

    module = getattr(model, "module", model)
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    shapes = {name: "x".join(map(str, tuple(value.shape))) for name, value in trained.items()}
    lines = sorted(f"{name} {shape}\n" for name, shape in shapes.items())
    return {
        "parameters": sum(int(value.numel()) for value in trained.values()),
        "shapes": hashlib.sha256("".join(lines).encode()).hexdigest(),
    }


def communication_hook(model: "Any") -> "str | None":
    """Return the name of the program's communication hook, unless it is known to average."""
    name = str(model._get_ddp_logging_data().get("comm_hook") or "")
    return None if not name or name.startswith(_AVERAGING) else name


def check_local_steps(model: "Any", in_groups: bool, refused: "Callable[[str], Exception]") -> None:
    """Raise `refused` with the reason if ranks cannot take steps of this model independently.

    `in_groups`: groups of ranks still average gradients, in a communication hook.
    """
    kind = type(model.module).__name__
    if in_groups and model._get_ddp_logging_data().get("comm_hook"):
        raise refused(f"{kind} has a communication hook already; torch takes one")
    options = {
        "_use_python_reducer": "averages in a compiled backward pass",
        "_delay_all_reduce_all_params": "averages at the time that the program chose",
    }
    if in_groups:
        every = "of which all ranks tell each other in each step"
        options["find_unused_parameters"] = f"looks for unused parameters, {every}"
    for name, value in options.items():
        if getattr(model, name, False):
            raise refused(f"{kind} {value}")
    batchnorm: Any = sys.modules["torch.nn.modules.batchnorm"]
    for name, layer in model.module.named_modules():
        if isinstance(layer, batchnorm.SyncBatchNorm):
            raise refused(f"{name} is SyncBatchNorm, for which all ranks wait in each step")
        if in_groups and getattr(layer, "sparse", False) is True:
            raise refused(f"{name} has sparse gradients, which no communication hook takes")
    if any(parameter.is_complex() for parameter in model.module.parameters()):
        raise refused(f"{kind} has complex parameters, which are not averaged")
    zero: Any = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    if zero is not None and _has_instance(zero.ZeroRedundancyOptimizer):
        raise refused("a ZeroRedundancyOptimizer needs the same gradients on all ranks")


def _has_instance(kind: type) -> bool:
    """Return whether any object of a class is alive."""
    import gc

    return any(issubclass(type(thing), kind) for thing in gc.get_objects())


def group_size(model: "Any") -> int:
    """Return the number of ranks over which a model averages."""
    return int(model.process_group.size())


def local_norms(model: "Any") -> "list[str]":
    """Return the names of the batch norms that use the samples of one rank only."""
    batchnorm: Any = sys.modules["torch.nn.modules.batchnorm"]
    return [
        name or type(layer).__name__
        for name, layer in model.module.named_modules()
        if isinstance(layer, batchnorm._BatchNorm)
        and not isinstance(layer, batchnorm.SyncBatchNorm)
        and (layer.training or not layer.track_running_stats)
    ]


def shortened(names: "Sequence[str]") -> str:
    """Return text such as "bn1, bn2 and 3 more"."""
    suffix = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + suffix
