"""Loops whose steps run on a device that only counts time (tests/fake_device.py).

The device is used from the third batch of the second loop on. At the end it is lost while its
events are read, and the program raises what it raises by itself.
"""

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).resolve().parents[2]))

from fake_device import FakeDevice

DEVICE = FakeDevice(initialized=False)
MS_A_STEP, SLEEP = 5, 0.02

for name in (
    "is_initialized", "is_current_stream_capturing", "current_device", "device_count",
    "current_stream", "Event",
):  # fmt: skip
    setattr(torch.cuda, name, getattr(DEVICE, name))
torch.version.cuda = "13.2"
torch._C._cuda_hasPrimaryContext = DEVICE.contexts.__contains__


class Slow(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(SLEEP / 2)
        return index


def loop(workers, used_from, lost_at=None):
    for number, batch in enumerate(DataLoader(Slow(), batch_size=2, num_workers=workers)):
        print(workers, batch.tolist(), flush=True)
        if number >= used_from:
            DEVICE.launch(MS_A_STEP)
        if number == lost_at:
            DEVICE.failing = "elapsed_time"
    # The last step ends on the device while the host does something else.
    time.sleep(SLEEP)


loop(0, used_from=99)
loop(0, used_from=2)
loop(1, used_from=0)
loop(0, used_from=0, lost_at=2)
raise ValueError("the end")
