from . import pin_memory, worker  # noqa: F401
