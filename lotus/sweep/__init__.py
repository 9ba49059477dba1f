"""Sweeps: runs of one program under many loader settings, and where it saturates."""

TYPE_CHECKING = False  # as in `typing`, whose import costs
if TYPE_CHECKING:
    from lotus.sweep.sweep_record import Sweep

__all__ = ["Sweep"]


def __getattr__(name: str) -> object:
    if name != "Sweep":
        raise AttributeError(f"module 'lotus.sweep' has no attribute {name!r}")
    from lotus.sweep.sweep_record import Sweep  # which imports pandas

    return Sweep
