"""Installs what the environment asks for in this program: tracing, settings, tuning.

This is the only module that knows all three, and it connects them. Each is imported only if needed.
"""

import os

from .common import clocks  # noqa: F401 - now, before the program can replace those in `time`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from .apply.settings_applier import Applier


def trace() -> None:
    """Record as LOTUS_RUN and the other variables of `lotus trace` say."""
    from .trace import tracer

    tracer.install()


def apply_settings(environ: "Mapping[str, str] | None" = None) -> "Applier":
    """Apply the settings of LOTUS_SETTINGS to the loaders that they match."""
    from .apply import settings_applier

    return settings_applier.install(environ, {"balance": _balance, "mode": _mode})


def tune() -> None:
    """Try settings as LOTUS_TUNE says."""
    from contextlib import contextmanager

    from .tune import agent

    agent.install(contextmanager(_recorded))


def _balance(applier: "Any", plan: "dict[str, Any]") -> "Any":
    from .distributed.share_applier import ShareApplier

    return ShareApplier(applier, plan)


def _mode(applier: "Any", options: "dict[str, Any]") -> "Any":
    from .distributed.training_modes import ModeApplier

    return ModeApplier(applier, options)


def _recorded(variables: "Mapping[str, str]") -> "Iterator[None]":
    """Record this process and its child processes, unless a trace already does.

    For `contextlib.contextmanager`.
    """
    from .trace import active, tracer

    if active.tracer is not None and active.tracer.on:
        yield
        return
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)  # for spawned workers
    recording = tracer.install(os.environ)
    try:
        yield
    finally:
        recording.uninstall()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
