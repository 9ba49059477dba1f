"""Operations whose names say that they draw random numbers."""

import re

# Transforms of the usual libraries.
_RANDOM = re.compile(r"(?<![a-z])Rand(?:om)?(?![a-z])|Jitter|Augment|AugMix|Dropout|Noise")


def is_random(name: object) -> bool:
    """Return True if an operation of this name changes its samples at random."""
    return _RANDOM.search(str(name)) is not None
