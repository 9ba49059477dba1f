"""What a data-parallel model says to weighted gradients: which it is, what stands against them."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# They average what each rank gives, as torch does without a hook.
_AVERAGING = (
    "allreduce_hook",
    "fp16_compress_hook",
    "bf16_compress_hook",
    "BuiltinCommHookType.",
    "_reducer_allreduce_and_upcast_hook",  # DistributedDataParallel(mixed_precision=...)
)


def fingerprint(model: "Any") -> "dict[str, Any]":
    """`parameters`, how many numbers are trained, and `shapes`, the SHA-256 of a line for each
    trained parameter: its name and sizes, as "layer.weight 10x5", sorted by name."""
    import hashlib

    module = getattr(model, "module", model)
    trained = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
    lines = sorted(f"{name} {'x'.join(map(str, tuple(one.shape)))}\n" for name, one in trained)
    return {
        "parameters": sum(int(one.numel()) for _, one in trained),
        "shapes": hashlib.sha256("".join(lines).encode()).hexdigest(),
    }


def communication_hook(model: "Any") -> "str | None":
    """The name of the program's own communication hook, where it is not known to average."""
    name = str(model._get_ddp_logging_data().get("comm_hook") or "")
    return None if not name or name.startswith(_AVERAGING) else name


def lonely(model: "Any", in_groups: bool, refused: "Callable[[str], Exception]") -> None:
    """Raise `refused` for a model whose ranks cannot take steps of their own, with why.

    `in_groups`: some ranks average gradients, by a communication hook.
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
    for name, what in options.items():
        if getattr(model, name, False):
            raise refused(f"{kind} {what}")
    batchnorm: Any = sys.modules["torch.nn.modules.batchnorm"]
    for name, layer in model.module.named_modules():
        if isinstance(layer, batchnorm.SyncBatchNorm):
            raise refused(f"{name} is SyncBatchNorm, for which all ranks wait in each step")
        if in_groups and getattr(layer, "sparse", False) is True:
            raise refused(f"{name} has sparse gradients, which no communication hook takes")
    if any(one.is_complex() for one in model.module.parameters()):
        raise refused(f"{kind} has complex parameters, which are not averaged")
    zero: Any = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    if zero is not None and _lives(zero.ZeroRedundancyOptimizer):
        raise refused("a ZeroRedundancyOptimizer needs the same gradients on all ranks")


def _lives(kind: type) -> bool:
    """Whether there is an object of a class."""
    import gc

    return any(issubclass(type(one), kind) for one in gc.get_objects())


def group_size(model: "Any") -> int:
    """How many ranks it averages over."""
    return int(model.process_group.size())


def local_norms(model: "Any") -> "list[str]":
    """The batch norms whose statistics are of one rank's samples only, by name."""
    batchnorm: Any = sys.modules["torch.nn.modules.batchnorm"]
    return [
        name or type(layer).__name__
        for name, layer in model.module.named_modules()
        if isinstance(layer, batchnorm._BatchNorm)
        and not isinstance(layer, batchnorm.SyncBatchNorm)
        and (layer.training or not layer.track_running_stats)
    ]


def some(names: "Sequence[str]") -> str:
    """As "bn1, bn2 and 3 more"."""
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
