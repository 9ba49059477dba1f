"""soundfile's reader of sound files, in place of torchaudio's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "read sound files with soundfile"
CHANGE = (
    "samples, rate = soundfile.read(path, dtype='float32', always_2d=True); "
    "torch.from_numpy(samples.T)"
)
KNOWN = "newer versions of torchaudio read by TorchCodec, which starts FFmpeg's decoders each time"
_ENDINGS = (".wav", ".flac", ".ogg")


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer for torchaudio.load, or an operation that makes a tensor and a rate from a
    path.
    """
    import torch

    for operation in operations:
        paths = [
            value
            for value in operation.inputs
            if isinstance(value, str) and value.lower().endswith(_ENDINGS)
        ]
        if not paths:
            continue
        result = operation.run(paths[0])
        if not (
            isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], torch.Tensor)
        ):
            continue
        import soundfile  # imported only where it may help, so that it is not missed elsewhere

        def read(path: Any, soundfile: Any = soundfile) -> Any:
            samples, _ = soundfile.read(path, dtype="float32", always_2d=True)
            return torch.from_numpy(samples.T)

        def before(path: Any, operation: Any = operation) -> Any:
            return operation.run(path)[0]

        yield (operation.name,), before, read, paths
