import os

from torch.utils.data import _utils  # noqa: F401


class _DatasetKind:
    @staticmethod
    def create_fetcher(kind, dataset):
        return Fetcher(dataset)


class Fetcher:
    """Has none of the attributes that ours looks for."""

    def __init__(self, dataset):
        self._data = dataset

    def fetch(self, index):
        return self._data[index]


class _BaseDataLoaderIter:
    __slots__ = ("at", "fetcher")

    def __init__(self, loader):
        self.fetcher = _DatasetKind.create_fetcher(0, loader.dataset)
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        return self._next_data()


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def _next_data(self, *more, **words):
        if self.at == 4:
            raise StopIteration
        self.at += 1
        return self.fetcher.fetch(self.at - 1)


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def _reset(self):
        pass

    def _try_get_data(self):
        return None

    def _next_data(self):
        return None

    def _shutdown_workers(self):
        pass


class DataLoader:
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return self._get_iterator(hint=1)

    def _get_iterator(self, *, hint):
        return _SingleProcessDataLoaderIter(self)


if os.environ.get("LACKS"):
    exec(f"del {os.environ['LACKS']}")
