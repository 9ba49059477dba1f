"""What is observed of the start of epochs."""

import types

from lotus.inside.tune.observation.observer import LoaderObserver


def test_the_first_start_is_kept_and_the_shortest_of_the_later_ones() -> None:
    loader = types.SimpleNamespace(num_workers=2, batch_size=None, batch_sampler=None)
    observer, starts = LoaderObserver(loader), []
    for began, arrived in ((10.0, 12.0), (20.0, 20.5), (30.0, 30.25), (40.0, 41.0)):
        observer.begin(began)
        for now in (arrived, arrived + 3.0):  # the second batch of an epoch is no start
            observer.batch_received(began, now, None)
            observer.next_called()
        starts.append((observer.startup_s, observer.later_startup_s))
    assert starts == [(2.0, None), (2.0, 0.5), (2.0, 0.25), (2.0, 0.25)]
