"""Which loops are long enough for `lotus tune`: one limit for the tuner and for what advises it."""

LEAST_EPOCH_S = 1.0  # no setting can gain more than all of it


def too_short(epoch_s: float | None) -> bool:
    """Whether an epoch is known to be over too soon to gain from another setting."""
    return epoch_s is not None and epoch_s < LEAST_EPOCH_S
