"""The display of a run in a notebook, set by the `lotus` package, which imports all reports."""

TYPE_CHECKING = False  # `import lotus` loads this file, and little else
if TYPE_CHECKING:
    from collections.abc import Callable

# The HTML of a lotus.Run; None until `import lotus` has set it.
run_html: "Callable[[object], str] | None" = None
