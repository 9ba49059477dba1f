"""The runs of programs/shapes.py that several test files look at."""

IN_ORDER = (
    "single fork persistent iterable ordered unbatched samplers collate subclass parts leave "
    "train_val together nested in_thread pooled"
).split()
STARTED = ["spawn", "forkserver"]


def forked(torch: tuple[int, int]) -> list[str]:
    """Shapes for one process; `kept` must be the last, for its workers live until the end."""
    return [*IN_ORDER, *(["unordered"] if torch >= (2, 6) else []), "kept"]
