"""A Program that sends requests to lotus/inside/tune/candidates/trials/trials.py as messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lotus.common.storage import declared
from lotus.inside.tune.candidates import trial_requests
from lotus.inside.tune.candidates.trial_requests import Opened, Reply, Request
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Target
from lotus.tune.program.program import TrialError, Watched


class RemoteProgram(ABC):
    """A lotus.tune.program.program.PausedProgram; subclasses transport its messages."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.workers: dict[Setting, list[int]] = {}  # process ids of each setting's workers

    @abstractmethod
    def _send(self, message: dict[str, Any]) -> Any:
        """Send a message and return the value of its reply. Raises TrialError."""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        """Perform a request: see `PausedProgram.perform`."""
        value = self._send(trial_requests.message_of(request, setting.as_json()))
        try:
            reply = trial_requests.reply_from(request, value)
        except (AttributeError, TypeError, ValueError):
            raise TrialError("the program sent an invalid reply") from None
        if isinstance(reply, Opened):
            self.workers.setdefault(setting.normal(), []).extend(reply.workers)
        return reply


def watched_from(message: dict[str, Any]) -> Watched:
    """Decode the description of a loader sent by `Trials.describe` or by the agent.

    Raises ValueError if a field of the loader or of its setting is invalid.
    """
    rest: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in message.items()
        if name not in ("loader", "setting")
    }
    target = declared.read_as(Target, message["loader"], "the loader")
    own = Setting.from_json(message["setting"])
    return Watched(loader=target, setting=own, **rest)
