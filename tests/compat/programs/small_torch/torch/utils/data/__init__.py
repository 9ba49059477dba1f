"""As torch.utils.data."""

from .dataloader import DataLoader as DataLoader
from .dataloader import Dataset as Dataset
