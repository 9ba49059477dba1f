"""A bar for work that lasts two seconds or more, on a stderr that is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

TYPE_CHECKING = False  # as in `typing`
if TYPE_CHECKING:
    import threading

Advance = Callable[[int, int], None]  # told what is done, of how much

_NOTICED_S = 2.0  # of work without any output
_REFRESHED_S = 0.2


class Bar:
    """A progress bar; it is called with the amounts that are done and in all."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._counts: tuple[int, int | None] = (0, None)

    def __call__(self, done: int, whole: int) -> None:
        self._counts = done, whole

    def doing(self, what: str) -> "Bar":
        """Name the next part of the work, of which nothing is known yet; returns the bar."""
        self._what, self._counts = what, (0, None)
        return self

    def show(self, over: "threading.Event") -> None:
        """Draw it from two seconds on until the work is over."""
        if not over.wait(_NOTICED_S):
            with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
                self._draw(over)

    def _draw(self, over: "threading.Event") -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(file=sys.stderr)
        with Progress(
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,  # what the command prints is its result
            redirect_stderr=False,
        ) as drawn:
            task = drawn.add_task(self._what, total=None)
            while True:
                done, whole = self._counts
                drawn.update(
                    task, description=self._what, completed=done, total=whole, refresh=True
                )
                if over.wait(_REFRESHED_S):
                    return


@contextlib.contextmanager
def progress(what: str) -> Iterator[Bar]:
    """Show a bar for the work of this context.

    A thread draws it, so that it appears in time however long a single step takes.
    """
    bar = Bar(what)
    if sys.stderr is None or not sys.stderr.isatty():
        yield bar
        return
    import threading

    over = threading.Event()
    drawer = threading.Thread(target=bar.show, args=(over,), daemon=True)
    try:
        with contextlib.suppress(RuntimeError):  # no thread can be started
            drawer.start()
        yield bar
    finally:
        over.set()
        if drawer.ident is not None:
            drawer.join()
