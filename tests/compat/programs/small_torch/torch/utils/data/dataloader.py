"""As torch.utils.data.dataloader: a loader of a map-style data set, with workers or without."""

import itertools
import multiprocessing

from torch._utils import ExceptionWrapper

from . import _utils


class Dataset:
    pass


class _MapDatasetFetcher:
    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn

    def fetch(self, possibly_batched_index):
        return self.collate_fn([self.dataset[idx] for idx in possibly_batched_index])


class _DatasetKind:
    Map = 0

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        return _MapDatasetFetcher(dataset, auto_collation, collate_fn, drop_last)


class _BatchSampler:
    def __init__(self, numbers, size):
        self.numbers, self.size = numbers, size

    def __iter__(self):
        return (list(self.numbers[i : i + self.size]) for i in self.numbers[:: self.size])

    def __len__(self):
        return len(self.numbers[:: self.size])


class DataLoader:
    _dataset_kind = _DatasetKind.Map
    pin_memory = persistent_workers = drop_last = False
    timeout, prefetch_factor, sampler = 0, 2, None

    def __init__(
        self, dataset, batch_size=1, num_workers=0, multiprocessing_context=None, collate_fn=list
    ):
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.multiprocessing_context = multiprocessing.get_context(multiprocessing_context)
        self.collate_fn = collate_fn
        self.batch_sampler = _BatchSampler(range(len(dataset)), batch_size)
        self._index_sampler = self.batch_sampler

    def _get_iterator(self):
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self):
        return self._get_iterator()


class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._arguments = loader._dataset_kind, loader.dataset
        self._more = True, loader.collate_fn, False
        self._index_sampler = loader._index_sampler
        self._sampler_iter = iter(self._index_sampler)

    def __iter__(self):
        return self

    def _reset(self, loader, first_iter=False):
        self._sampler_iter = iter(self._index_sampler)

    def _next_index(self):
        return next(self._sampler_iter)

    def __next__(self):
        return self._next_data()


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        self._dataset_fetcher = _DatasetKind.create_fetcher(*self._arguments, *self._more)

    def _next_data(self):
        return self._dataset_fetcher.fetch(self._next_index())


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        context = loader.multiprocessing_context
        self._shutdown = False
        self._data_queue = context.Queue()
        self._workers_done_event = context.Event()
        self._index_queues, self._workers = [], []
        for number in range(loader.num_workers):
            queue = context.Queue()
            queue.cancel_join_thread()
            arguments = (*self._arguments, queue, self._data_queue, self._workers_done_event)
            worker = context.Process(
                target=_utils.worker._worker_loop,
                args=(*arguments, *self._more, number, loader.num_workers),
                daemon=True,
            )
            worker.start()
            self._index_queues.append(queue)
            self._workers.append(worker)
        self._reset(loader, first_iter=True)

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._send_idx = self._rcvd_idx = 0
        self._task_info = {}
        self._queues = itertools.cycle(self._index_queues)
        for _ in range(loader.prefetch_factor * len(self._workers)):
            self._try_put_index()

    def _try_put_index(self):
        try:
            index = self._next_index()
        except StopIteration:
            return
        next(self._queues).put((self._send_idx, index))
        self._send_idx += 1

    def _try_get_data(self, timeout=300):
        return True, self._data_queue.get(timeout=timeout)

    def _next_data(self):
        if self._rcvd_idx == self._send_idx:
            self._shutdown_workers()
            raise StopIteration
        while self._rcvd_idx not in self._task_info:
            _, (idx, data) = self._try_get_data()
            self._task_info[idx] = data
        data = self._task_info.pop(self._rcvd_idx)
        self._rcvd_idx += 1
        self._try_put_index()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    def _shutdown_workers(self):
        if not self._shutdown:
            self._shutdown = True
            self._workers_done_event.set()
            for queue in self._index_queues:
                queue.put(None)
            for worker in self._workers:
                worker.join()

    def __del__(self):
        self._shutdown_workers()
