"""Serves the requests of lotus one after the other, while the program is paused."""

from __future__ import annotations

from ..candidates import trial_requests
from ..candidates.trials.trials import CandidateError, ForbiddenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...common.control import exchange
    from ..candidates.trials.trials import Trials


def serve(
    link: exchange.Link, trials: Trials, raised: Callable[[], BaseException | None]
) -> dict[str, Any]:
    """Serve requests until a message ends the trials; return that message.

    Raises the exception that a signal handler has raised meanwhile, which `raised` returns.
    """
    while True:
        message = link.ask()
        if trial_requests.ends_trials(message):
            return message
        try:
            answer = {"did": trial_requests.serve(trials, message)}
        except CandidateError as error:
            answer = {"failed": str(error), "final": isinstance(error, ForbiddenError)}
        interruption = raised()
        if interruption is not None:
            raise interruption
        link.tell(answer)
