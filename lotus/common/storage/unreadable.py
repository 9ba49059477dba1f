"""What to say of a file or directory that this user may not read."""

import os
import shlex
from pathlib import Path

from lotus.common.machine.user_name import user_name
from lotus.common.text.formatting import plain


def unreadable(error: PermissionError) -> str:
    """Say which file or directory may not be read, and what to type; "" if all may."""
    if not isinstance(error.filename, (str, os.PathLike)):
        return ""
    path = Path(os.fsdecode(error.filename))
    for each in (*reversed(path.parents), path):  # the first that cannot be entered or read
        allowed = os.R_OK | os.X_OK if each.is_dir() else os.R_OK
        if not os.access(each, os.X_OK if each in path.parents else allowed):
            break
    else:
        return ""
    owner = each.stat().st_uid
    name = plain(shlex.quote(str(each)))
    if owner == os.geteuid():
        return f"{name} cannot be read, though it is this user's: chmod -R u+rX {name}"
    return (
        f"{name} cannot be read by this user (it belongs to {user_name(owner)}): "
        f"chmod -R go+rX {name}, or run lotus as its owner"
    )
