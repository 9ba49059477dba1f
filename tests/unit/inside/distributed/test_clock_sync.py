"""Clocks that are compared over a store in which an earlier start of the job left its words."""

import threading
from typing import Any

from lotus.inside.distributed.clock_sync import Exchange


class Store:
    """As a job's store, in one process."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.changed = threading.Condition()

    def add(self, name: str, more: int) -> int:
        with self.changed:
            value: int = self.values.get(name, 0) + more
            if more:
                self.values[name] = value
                self.changed.notify_all()
            return value

    def set(self, name: str, value: str) -> None:
        with self.changed:
            self.values[name] = value.encode()
            self.changed.notify_all()

    def wait(self, names: list[str], _: object) -> None:
        with self.changed:
            self.changed.wait_for(lambda: set(names) <= set(self.values))

    def get(self, name: str) -> bytes:
        self.wait([name], None)
        return bytes(self.values[name])

    def delete_key(self, name: str) -> None:
        with self.changed:
            self.values.pop(name, None)


class HeardEvents:
    """In the recorder's place: what was told of the clocks, and that something was."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.any_event = threading.Event()

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.any_event.set()


class Side(Exchange):
    def __init__(
        self, recorder: HeardEvents, store: Store, stop: threading.Event, clock: str
    ) -> None:
        super().__init__(recorder, store, stop)  # type: ignore[arg-type]
        self.id = clock

    def accepts(self) -> bool:
        return True


def test_after_a_restart_the_hosts_meet_again_whatever_they_count(monkeypatch: Any) -> None:
    # GIVEN hosts of which each counts its own restarts, and a store that stays
    store = Store()
    jobs: list[str] = []
    for start in range(3):
        stop = threading.Event()
        own, other = HeardEvents(), HeardEvents()
        # WHEN a start of the job begins, and the other host is there before rank 0 is
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
        sides = [Side(own, store, stop, "one")]
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(start))
        sides.append(Side(other, store, stop, "two"))
        threads = [threading.Thread(target=f, daemon=True) for f in (sides[1].ask, sides[0].answer)]
        threads[0].start()
        if start:
            with store.changed:  # it has come to where the start before left its words
                store.changed.wait_for(lambda: store.values[f"lotus/clocks/{jobs[-1]}/hosts"] == 2)
        threads[1].start()
        # THEN they compare their clocks, and tell one job, which is not the one before
        other.any_event.wait()
        stop.set()
        for thread in threads:
            thread.join()
        assert (other.events[0]["clock"], other.events[0]["reference"]) == ("two", "one")
        assert other.events[0]["round_trip_ns"] > 0
        assert {event["job"] for event in (*own.events, *other.events)} == {own.events[0]["job"]}
        jobs.append(own.events[0]["job"])
    assert len(set(jobs)) == 3
