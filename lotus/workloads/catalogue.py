"""The demos: what each trains on, and how much of it."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Workload:
    """A training script, and the data set of its demo."""

    name: str  # its script is NAME.py
    about: str
    maker: str  # the module that makes its data
    version: int  # of the data: another one does not mistake it for its own
    noun: str
    count: int
    megabytes: int  # that so many take on disk
    batch_size: int

    @property
    def script(self) -> Path:
        return FOLDER / f"{self.name}.py"

    def folder(self, count: int) -> str:
        """Return the folder name of a data set with `count` samples."""
        return f"{self.maker}-{self.version}-{count}"


_ALL = (
    Workload(
        name="image_classification",
        about="a small ResNet on ImageNet-sized JPEGs",
        maker="jpegs",
        version=1,
        noun="pictures",
        count=512,
        megabytes=57,
        batch_size=32,
    ),
    Workload(
        name="segmentation",
        about="a small 3-D U-Net on scans like those of KiTS19, with MLPerf's operations",
        maker="volumes",
        version=1,
        noun="volumes",
        count=24,
        megabytes=190,
        batch_size=2,
    ),
    Workload(
        name="detection",
        about="a small detector on JPEGs and boxes like those of COCO, with MLPerf's operations",
        maker="coco",
        version=1,
        noun="pictures",
        count=192,
        megabytes=26,
        batch_size=8,
    ),
    Workload(
        name="audio",
        about="a small speech recogniser on sound files like those of LJ Speech",
        maker="speech",
        version=1,
        noun="clips",
        count=256,
        megabytes=53,
        batch_size=16,
    ),
    Workload(
        name="text",
        about="a small transformer on files of lines, through a byte-pair encoding",
        maker="sentences",
        version=1,
        noun="texts",
        count=8000,
        megabytes=3,
        batch_size=32,
    ),
    Workload(
        name="tiny_images",
        about="a tiny network on images in memory like those of CIFAR-10, microseconds each",
        maker="cifar",
        version=1,
        noun="pictures",
        count=20_000,
        megabytes=61,
        batch_size=128,
    ),
)
WORKLOADS = {workload.name: workload for workload in sorted(_ALL, key=lambda each: each.name)}
DEFAULT = "image_classification"
