"""Values emeralds by rows of measurements that lie scattered in one large file.

Planted: the script lives in a group with 128 MB of memory, page cache included, and the file has
400 MB, so that most rows are read from the disk again in each epoch.
"""

import argparse
import atexit
import contextlib
import os
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROW, ROWS, STONES, PARTS, MEMORY = 4096, 100_000, 480, 24, 128 << 20
GROUPS = Path("/sys/fs/cgroup")


def enter_group(limit):
    """Puts this process, and what it starts later, into a group of its own."""
    first = (GROUPS / "memory").is_dir()
    root = GROUPS / "memory" if first else GROUPS
    with open("/proc/self/cgroup") as lines:
        parts = [line.rstrip("\n").split(":", 2) for line in lines]
    home = next(path for _, names, path in parts if names == ("memory" if first else ""))
    home = root / home.lstrip("/")
    group = root / f"emeralds-{os.getpid()}"
    try:
        group.mkdir()
        if not first:
            (root / "cgroup.subtree_control").write_text("+memory")
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(f"{limit}")
        (group / "cgroup.procs").write_text(f"{os.getpid()}")
    except OSError as error:
        print(f"goes on without a group: {error}", file=sys.stderr)
        with contextlib.suppress(OSError):
            group.rmdir()
        return
    atexit.register(leave_group, group, home)


def leave_group(group, home):
    for _ in range(50):
        with contextlib.suppress(OSError):
            for process in (group / "cgroup.procs").read_text().split():
                (home / "cgroup.procs").write_text(process)
            group.rmdir()
            return
        time.sleep(0.1)


def write_rows(path):
    rng = np.random.default_rng(4007)
    with open(path, "wb") as file:
        for _ in range(100):
            file.write(rng.integers(0, 256, (ROWS // 100, ROW), dtype=np.uint8).tobytes())
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def checksum(path):
    total = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total = zlib.crc32(block, total)
    return total


class Emeralds(Dataset):
    def __init__(self, path):
        rng = np.random.default_rng(4007)
        self.path, self.file = path, None
        self.rows = rng.permutation(ROWS)[: STONES * PARTS * 8].reshape(STONES, PARTS * 8)

    def __len__(self):
        return STONES

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        chosen = np.random.choice(self.rows[index], PARTS, replace=False)
        values = [os.pread(self.file, ROW, int(row) * ROW) for row in chosen]
        stone = np.frombuffer(b"".join(values), np.uint8).reshape(PARTS, ROW)
        stone = torch.from_numpy(stone[:, ::16].astype(np.float32) / 255)
        return stone.mean(0), stone.std()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(4007)
    model = nn.Sequential(nn.Linear(ROW // 16, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.bin")
        write_rows(path)
        if not args.without:
            enter_group(MEMORY)
        print(f"rows {checksum(path):08x}")
        loader = DataLoader(
            Emeralds(path), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for stones, values in loader:
                loss = nn.functional.mse_loss(model(stones).squeeze(1), values)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
