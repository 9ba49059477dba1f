"""The name of the function by which a folder data set decodes files, as it is shown.

Tables and documents name this operation "Loader", whatever the function is. Which one it was is in
the definitions of operations in a log; whoever reads them notes it here. Where the runs that this
process has read differ, no function is named.
"""

from collections.abc import Mapping
from typing import Any

STORED = "Loader"
_DEFAULT, _UNKNOWN = "default_loader", "loader"
_FILE = "torchvision/datasets/folder.py"  # which defines the default
_LONGEST = 60
_known: set[str] = set()


def note(operation: Mapping[str, Any]) -> None:
    """Note the function of an operation, if that is the decoder, from its definition in a log.

    An older log has only its file, or nothing: then it is taken for the default.
    """
    if operation.get("kind") != "loader":
        return
    function, file = operation.get("function"), operation.get("file")
    if isinstance(function, str) and function:
        _known.add(function[:_LONGEST].replace("/", "."))
    else:
        other = isinstance(file, str) and not file.endswith(_FILE)
        _known.add(_UNKNOWN if other else _DEFAULT)


def decoder_name() -> str:
    """Return the decoder's display name: "decode (default_loader)" or the run's own function."""
    if len(_known) > 1:
        return f"decode ({_UNKNOWN})"
    return f"decode ({next(iter(_known), _DEFAULT)})"
