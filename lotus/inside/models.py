"""What a data-parallel model says to weighted gradients: which it is, what stands against them."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
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
