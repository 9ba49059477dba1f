"""How the jobs of several ranks start, put lotus on anew for each case, and end."""

import json
import os
import subprocess
import sys
import tempfile

# A rank is started as this process was, with torch imported already where it has it (tests/warm).
PYTHON = getattr(sys, "_warm", sys.executable)


def start_all(script, ranks):
    """Run a script once for each rank and leave; in a rank itself it returns."""
    if "RANK" in os.environ:
        return
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [PYTHON, script, *sys.argv[1:]],
                env={**os.environ, "RANK": str(rank), "MEETING": f"file://{folder}/store"},
            )
            for rank in range(ranks)
        ]
        sys.exit(max(rank.wait() for rank in started))


def meet(rank, world):
    """Join the group of processes. Not at the top: what only starts ranks needs no torch."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=world)


def store_has_time():
    """Have the store be never too late, however slow the machine is: only ranks are to be."""
    agreeing = sys.modules["_lotus_inside.distributed.consensus"]
    known = agreeing.StoreWithTimeout
    agreeing.StoreWithTimeout = lambda store, wait_s: known(store, 600)


class Lotus:
    """What `lotus run` put into this process, taken off; `on` puts it on as a case wants it."""

    def __init__(self):
        self.settings = sys.modules["_lotus_inside.apply.settings_applier"]
        self.notes_path = self.settings.active.notes.path  # where `lotus run` reads
        self.settings.active.uninstall()

    def on(self, case, call):
        """What a call returns with what is given put on, and what was said."""
        import torch.distributed as dist

        text = json.dumps({"loaders": [], **case, "said": self.notes_path})
        applier = sys.modules["_lotus_inside.install"].apply_settings({"LOTUS_SETTINGS": text})
        result = call()
        applier.uninstall()
        dist.barrier()
        return {**result, "said": sorted(applier.notes.shown)}


def leave(rank, truth):
    """Write what the tests ask for and end, when all ranks have passed the last barrier."""
    with open(f"{os.environ['TRUTH']}.{rank}", "w") as file:
        json.dump(truth, file)
    # Not by torch's own end, to which a job with torch 2.2.2 did not come once in eight runs, when
    # all was written.
    os._exit(0)
