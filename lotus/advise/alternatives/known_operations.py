"""Names of the operations of which `lotus advise` may measure other implementations."""

from __future__ import annotations

from lotus.common.text.decoder_name import STORED
from lotus.common.text.formatting import operation_name

# Of torchvision, as a run has them.
KNOWN = (
    STORED, "default_loader", "pil_loader", "Resize", "RandomResizedCrop", "Normalize", "ToTensor",
    "ToDtype",
)  # fmt: skip


def has_alternatives(title: str) -> bool:
    """Return True if a file of lotus/inside/alternatives/ is about the operation of this title.

    A title is the operation's name as it is shown, and perhaps what it does: "Resize (waits)".
    """
    named = title.partition(", most of it ")[0].rpartition("/")[2]
    names = (operation_name(name) for name in KNOWN)
    return any(named == name or named.startswith(f"{name} (") for name in names)
