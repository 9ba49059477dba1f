"""The parts of a process that this user may read, and the command that may read more."""

import contextlib
import os
import shlex
import sys

from lotus.common.machine.user_name import user_name

_POD = "kubectl debug --target=CONTAINER --profile=sysadmin"
_CONTAINERS = f"in a container docker run --cap-add SYS_PTRACE, in a cluster {_POD}"


def may_not_look(pid: int) -> str:
    """Return why the kernel refuses stacks and system calls of a process; "" if it does not.

    The reason names the command that would be allowed to read them.
    """
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            file.read(1)
        return ""
    except PermissionError:
        pass
    except OSError:
        return ""
    if os.geteuid() == 0:
        return (
            "The kernel refuses stacks and system calls even to root here; start the container "
            f"with docker run --cap-add SYS_PTRACE, or use {_POD}"
        )
    owner = other_owner(pid)
    whose = f"Process {pid} belongs to {owner}: the" if owner else "The"
    return (
        f"{whose} kernel refuses its stacks and system calls to this user; for more: "
        f"{with_more_rights(pid)}, {_CONTAINERS}"
    )


def with_more_rights(pid: int) -> str:
    """Return the command that may read everything of a process."""
    lotus = os.path.join(os.path.dirname(sys.executable), "lotus")
    words = [lotus] if os.path.exists(lotus) else [sys.executable, "-m", "lotus"]
    return shlex.join(["sudo", *words, "attach", str(pid)])


def other_owner(pid: int) -> str:
    """Return the owner of a process; "" if that is this user or is not known."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open(f"/proc/{pid}/status", "rb") as file:
            # root owns /proc/PID itself if the process may not be dumped.
            uid = int(next(line for line in file if line.startswith(b"Uid:")).split()[2])
        return "" if uid == os.geteuid() else user_name(uid)
    return ""


def is_hidden(pid: int) -> bool:
    """Return whether a process exists but nothing of it may be read, as with hidepid."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
