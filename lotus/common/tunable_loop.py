"""The shortest loop for `lotus tune`: one limit for the tuner and for what advises it."""

LEAST_EPOCH_S = 1.0  # a gain cannot exceed all of it


def too_short(epoch_s: float | None) -> bool:
    """Return True if an epoch is known to be too short to gain from another setting."""
    return epoch_s is not None and epoch_s < LEAST_EPOCH_S
