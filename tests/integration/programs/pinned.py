"""A loader that pins, with a made-up accelerator whose pinning takes 5 ms a tensor."""

import time
import types

import torch
from torch.utils.data import DataLoader

device = types.SimpleNamespace(type="cpu", index=0)
if hasattr(torch, "accelerator"):
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda *_: device
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _: None
else:
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda _: None


def pin_memory(self, device=None):
    time.sleep(0.005)
    return self.clone()


torch.Tensor.pin_memory = pin_memory

if __name__ == "__main__":
    loader = DataLoader(list(range(40)), batch_size=4, num_workers=2, pin_memory=True)
    for _ in range(2):
        print(sum(int(batch.sum()) for batch in loader))
