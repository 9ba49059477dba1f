"""As torch.utils.data."""

from ._utils.worker import get_worker_info as get_worker_info
from .dataloader import DataLoader as DataLoader
from .dataloader import Dataset as Dataset
