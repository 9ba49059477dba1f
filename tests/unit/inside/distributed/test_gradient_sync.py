"""Gradients of a model on a device: what NCCL does beside Python is not timed, and that is said."""

from types import SimpleNamespace
from typing import Any

from lotus.inside.distributed.gradient_sync import Gradients


class _Recorder:
    pid, on = 1, True

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def event(self, fact: dict[str, Any]) -> None:
        self.events.append(fact)

    def look_around(self) -> None:
        pass


def _torch(queued: list[Any]) -> Any:
    engine = SimpleNamespace(queue_callback=queued.append)
    return SimpleNamespace(
        is_grad_enabled=lambda: True,
        autograd=SimpleNamespace(Variable=SimpleNamespace(_execution_engine=engine)),
        _C=SimpleNamespace(
            _current_graph_task_id=lambda: 0,
            _dynamo=SimpleNamespace(eval_frame=SimpleNamespace()),
        ),
    )


class _Output:
    """Fails if anything is hooked to it."""

    @property
    def grad_fn(self) -> Any:
        raise AssertionError("the output of a model on a device was looked at")


def test_a_model_on_a_device_is_left_alone_with_one_note() -> None:
    recorder, queued = _Recorder(), []
    torch = _torch(queued)
    torch.Tensor = _Output
    gradients = Gradients(recorder, torch)  # type: ignore[arg-type]
    model = SimpleNamespace(require_backward_grad_sync=True, device_type="cuda")
    for _ in range(3):
        gradients.forwarded(model, _Output())
    (note,) = recorder.events
    assert note["text"] == (
        "gradient synchronisation is not timed: the parameters are on cuda, whose work goes on "
        "beside Python's"
    )
    assert (queued, gradients.models, gradients.passes) == ([], {}, {})
