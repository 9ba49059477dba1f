"""Trials in place of the program, as lotus asks for them, one after the other."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from . import exchange

LAST = ("end", "apply", "leave", "train")  # to be done when the trials are over


class Asking:
    """Trials, as lotus asks for them."""

    def __init__(
        self, link: exchange.Link, candidates: Any, raised: Callable[[], BaseException | None]
    ) -> None:
        self.link, self.candidates, self.raised = link, candidates, raised

    def run(self) -> dict[str, Any]:
        """Do what is asked until that is to end."""
        from .candidate import Failed, Forbidden

        while True:
            asked = self.link.ask()
            if asked["do"] in LAST:
                return asked
            arguments = {name: value for name, value in asked.items() if name != "do"}
            try:
                did = self._methods()[asked["do"]](**arguments)
                told = {"did": did}
            except Failed as error:
                told = {"failed": str(error), "final": isinstance(error, Forbidden)}
            raised = self.raised()
            if raised is not None:
                raise raised
            self.link.tell(told)

    def _methods(self) -> dict[str, Callable[..., Any]]:
        some = self.candidates
        return {
            "open": some.open,
            "block": some.block,
            "close": some.close,
            "same_samples": some.same_samples,
        }
