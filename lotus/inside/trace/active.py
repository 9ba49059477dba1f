"""The tracer that is in force in this process."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

tracer: "Any" = None  # a Tracer; it says with `on` whether it still is
