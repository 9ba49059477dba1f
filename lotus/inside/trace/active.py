"""The tracer that is active in this process."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

tracer: "Any" = None  # a Tracer; its `on` says whether it is still active
