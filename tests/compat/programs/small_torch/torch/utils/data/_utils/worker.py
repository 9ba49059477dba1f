"""As torch.utils.data._utils.worker."""

from types import SimpleNamespace

from torch._utils import ExceptionWrapper

_worker_info = None


def get_worker_info():
    return _worker_info


def _worker_loop(
    dataset_kind,
    dataset,
    index_queue,
    data_queue,
    done_event,
    auto_collation,
    collate_fn,
    drop_last,
    worker_id,
    num_workers,
):
    global _worker_info
    from torch.utils.data.dataloader import _DatasetKind

    _worker_info = SimpleNamespace(id=worker_id, num_workers=num_workers)
    fetcher = _DatasetKind.create_fetcher(
        dataset_kind, dataset, auto_collation, collate_fn, drop_last
    )
    while True:
        task = index_queue.get(timeout=300)
        if task is None:
            break
        idx, index = task
        try:
            data = fetcher.fetch(index)
        except Exception:
            data = ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
        data_queue.put((idx, data))
    if done_event.is_set():
        data_queue.cancel_join_thread()
        data_queue.close()
