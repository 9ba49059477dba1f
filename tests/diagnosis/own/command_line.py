"""Each sample is decoded by a program of its own, as with ffmpeg, which computes."""

import gzip
import os
import subprocess
import tempfile

import planted
import torch


class Unpack:
    def __init__(self, path):
        self.path = path

    def __call__(self, value):
        done = subprocess.run(["gzip", "-dc", self.path], capture_output=True, check=True)
        return value + done.stdout[0]


if __name__ == "__main__":
    args = planted.arguments(samples=160)
    with tempfile.NamedTemporaryFile(suffix=".gz") as file:
        file.write(gzip.compress(os.urandom(1 << 16) * 160, 1))
        file.flush()
        planted.loop(
            planted.Pictures(
                torch.nn.Identity() if args.without else Unpack(file.name), args.samples
            ),
            planted.sleeping(0.02),
            num_workers=args.workers,
        )
