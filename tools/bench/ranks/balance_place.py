"""Moves a rank to its place in a cluster, then runs the training script in the same process.

    torchrun --standalone --nproc-per-node N balance_place.py PLACES.json SCRIPT ARGUMENTS ...

PLACES.json has each rank's network namespace, CPUs and control groups (balance_clusters.py). torch
is imported before the move: with less than half a core, importing it would take longer than what is
measured.
"""

import ctypes
import json
import os
import runpy
import sys
from pathlib import Path

NEWNET = 0x40000000  # CLONE_NEWNET of <linux/sched.h>


def enter(place: dict[str, object]) -> None:
    """Go to the namespace, the CPUs and the groups that a place names."""
    os.environ["GLOO_SOCKET_IFNAME"] = str(place.get("interface") or "lo")
    if place.get("master"):
        os.environ["MASTER_ADDR"] = str(place["master"])
    if place.get("namespace"):
        with open(f"/run/netns/{place['namespace']}", "rb") as file:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), NEWNET):
                raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
    if place.get("cpus"):
        os.sched_setaffinity(0, place["cpus"])  # type: ignore[arg-type]
    for group in place.get("groups") or ():  # type: ignore[attr-defined]
        (Path(group) / "cgroup.procs").write_text("0")  # the one that writes


def main() -> None:
    places, script = sys.argv[1:3]
    place = json.loads(Path(places).read_text())[int(os.environ["RANK"])]
    import torch.distributed
    import torch.utils.data  # noqa: F401

    enter(place)
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
