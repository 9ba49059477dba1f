"""The simulator against loops worked out by hand, against torch's rules, and against itself."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotus.settings.space import Setting
from lotus.tune.simulation.bottleneck import binding
from lotus.tune.simulation.event_loop import EventLoop, Queue
from lotus.tune.simulation.loader_simulation import order_of, simulate, steady_rate
from lotus.tune.simulation.simulation_types import Machine, Work

FREE = Machine(cores=1000)


def work(cpu, step=0.0, *, size=1.0, wait=0.0, read=0.0, **fixed):
    """Batches that cost `cpu` each (ns, one or a list); the step computes nothing by default."""
    cpu = np.atleast_1d(np.array(cpu, float))

    def each(value):
        return np.broadcast_to(np.array(value, float), cpu.shape).copy()

    fixed = {"step_cores": 0.0, **fixed}
    return Work(
        size=each(size),
        cpu_ns=cpu,
        wait_ns=each(wait),
        step_ns=np.atleast_1d(np.array(step, float)),
        bytes=each(100.0),
        read_bytes=each(read),
        **fixed,
    )


def taken(outcome):
    return outcome.timeline.taken_ns.tolist()


def started(outcome):
    return outcome.timeline.fetch_start_ns.tolist()


# Worked out by hand


def test_one_worker():
    result = simulate(work([10, 10, 10], 4), Setting(1), FREE)
    assert taken(result) == [10, 20, 30]
    assert result.seconds == pytest.approx(34e-9)
    assert result.wait_share == pytest.approx(22 / 34)
    assert result.samples_per_s == pytest.approx(3 / 34e-9)
    assert result.first_batch_s == pytest.approx(10e-9)


def test_two_workers_in_order_with_a_slow_batch():
    result = simulate(work([30, 10, 10, 10], 1), Setting(2, 1), FREE)
    assert result.timeline.order.tolist() == [0, 1, 2, 3]
    assert result.timeline.worker.tolist() == [0, 1, 0, 1]
    assert started(result) == [0, 0, 30, 31]  # no index without a batch taken
    assert result.timeline.made_ns.tolist() == [30, 10, 40, 41]
    assert result.timeline.arrival_ns.tolist() == [30, 10, 40, 41]
    assert taken(result) == [30, 31, 40, 41]
    assert result.seconds == pytest.approx(42e-9)


def test_not_in_order_a_slow_batch_holds_nobody_up():
    result = simulate(work([35, 10, 10, 10], 1), Setting(2, 1, in_order=False), FREE)
    assert result.timeline.order.tolist() == [1, 2, 3, 0]
    assert result.timeline.worker.tolist() == [0, 1, 1, 1]  # who has a batch to make gets no more
    assert taken(result) == [35, 10, 20, 30]
    assert result.seconds == pytest.approx(36e-9)


def test_prefetch_limits_what_is_made_in_advance():
    result = simulate(work([1] * 5, 10), Setting(1, 2), FREE)
    assert started(result) == [0, 1, 2, 11, 21]
    assert taken(result) == [1, 11, 21, 31, 41]
    assert result.seconds == pytest.approx(51e-9)
    assert result.peak_batches == 2
    assert result.in_flight_bytes == 200


def test_a_consumer_that_is_slower_sets_the_pace():
    result = simulate(work([5] * 100, 10), Setting(2, 2), FREE)
    assert result.seconds == pytest.approx(1005e-9)
    assert result.wait_share == pytest.approx(5 / 1005)


def test_no_workers():
    result = simulate(work([5, 5, 5], 3), Setting(0), FREE)
    assert taken(result) == [5, 13, 21]
    assert result.seconds == pytest.approx(24e-9)
    assert result.wait_share == pytest.approx(15 / 24)
    assert result.peak_batches == 1
    assert result.idle_share == 0


def test_workers_share_cores():
    result = simulate(work([10, 10], 4, step_cores=1), Setting(2, 1), Machine(cores=1))
    assert result.timeline.made_ns.tolist() == [20, 20]
    assert taken(result) == [20, 24]
    assert result.cores_share == pytest.approx(1)


def test_the_step_shares_cores_with_the_workers():
    result = simulate(work([10, 10], 10, step_cores=1), Setting(1), Machine(cores=1))
    # From 10 on the step and the second batch need 10 each of the one core.
    assert taken(result) == [10, 30]
    assert result.seconds == pytest.approx(40e-9)


def test_a_step_on_many_cores_takes_its_share_from_the_workers():
    result = simulate(work([10, 10], 10, step_cores=3), Setting(1), Machine(cores=2))
    # From 10 on four want two cores: all go at half their speed.
    assert taken(result) == [10, 30]


def test_busy_cores_slow_each_other_down():
    result = simulate(work([10, 10]), Setting(2, 1), Machine(cores=4, contention=0.5))
    assert result.timeline.made_ns.tolist() == [15, 15]


def test_other_programs_take_their_share():
    result = simulate(work([10]), Setting(1), Machine(cores=1, others=1))
    assert taken(result) == [20]


def test_start_and_end_of_workers():
    costs = work([10, 10], iter_ns=1, spawn_ns=2, boot_ns=3, first_ns=1, shutdown_ns=2, pickle_ns=1)
    result = simulate(costs, Setting(2, 1), FREE)
    assert started(result) == [6, 8]
    assert result.timeline.made_ns.tolist() == [18, 20]
    # They end side by side.
    assert result.seconds == pytest.approx(22e-9)
    assert result.startup_share == pytest.approx(20 / 22)
    result = simulate(costs, Setting(2, 1), Machine(cores=1))
    assert result.seconds * 1e9 - max(taken(result)) == pytest.approx(4)


def test_persistent_workers_start_once():
    costs = work([10], spawn_ns=5, boot_ns=5, shutdown_ns=7)
    again = simulate(costs, Setting(1), FREE, epochs=3)
    once = simulate(costs, Setting(1, persistent_workers=True), FREE, epochs=3)
    assert again.seconds == pytest.approx(3 * 27e-9)
    assert once.seconds == pytest.approx((10 + 3 * 10 + 7) * 1e-9)


def test_taking_a_batch_and_pinning_it():
    costs = work([10, 10], 20, get_ns=1, pin_ns=5)
    assert taken(simulate(costs, Setting(1), FREE)) == [11, 32]
    # The pin thread has done it before the consumer comes back.
    assert taken(simulate(costs, Setting(1, pin_memory=True), FREE)) == [16, 36]


def test_without_workers_there_is_no_new_shared_memory():
    costs = work([10, 10], 20, shared_ns=4, free_ns=5)
    assert taken(simulate(costs, Setting(0), FREE)) == [6, 6 + 15 + 6]
    assert taken(simulate(costs, Setting(1), FREE)) == [10, 30]


def test_each_sample_waits_for_storage():
    result = simulate(work([10], size=2, wait=100), Setting(1), Machine(1, latency_ns=5))
    assert taken(result) == [20]


def test_waiting_takes_no_core():
    result = simulate(work([10] * 4, wait=100), Setting(4, 1), Machine(cores=1))
    assert max(taken(result)) < 145


def test_readers_share_the_bandwidth():
    result = simulate(work([0, 0], read=100), Setting(2, 1), Machine(1000, bandwidth=10e9))
    assert result.timeline.made_ns.tolist() == [20, 20]
    assert result.storage_share == pytest.approx(1)


def test_faster_cores():
    assert taken(simulate(work([10]), Setting(1), Machine(1, speed=2))) == [5]


def test_memory():
    costs = work([1] * 5, 10, main_bytes=1000, worker_bytes=50)
    assert simulate(costs, Setting(1, 2), FREE).memory_bytes == 1000 + 50 + 200
    assert math.isnan(simulate(work([1]), Setting(1), FREE).memory_bytes)


def test_more_batches_than_recorded_are_the_recorded_ones_in_other_orders():
    assert order_of(5, 3, seed=0).tolist() == [0, 1, 2]
    order = order_of(5, 15, seed=1)
    assert order[:5].tolist() == [0, 1, 2, 3, 4]
    assert sorted(order[5:10]) == sorted(order[10:]) == [0, 1, 2, 3, 4]
    assert order_of(50, 120, seed=1).tolist() != order_of(50, 120, seed=2).tolist()


def test_steady_rate_leaves_the_warm_up_out():
    times = np.array([100.0, 101, 102, 112, 122])
    assert steady_rate([(times, np.ones(5))], 2) == pytest.approx(2 / 20e-9)
    assert steady_rate([(times[:1], np.ones(1))], 2) == 0


# What must not be


@pytest.mark.parametrize("name", ["cores", "speed", "bandwidth", "contention", "others"])
def test_an_impossible_machine_is_refused(name):
    with pytest.raises(ValueError, match=name):
        Machine(**{"cores": 1, name: -1})


def test_impossible_work_is_refused():
    with pytest.raises(ValueError, match="cpu_ns"):
        work([1, math.nan])
    with pytest.raises(ValueError, match="step_ns"):
        work([1], [])
    with pytest.raises(ValueError, match="at least one batch"):
        simulate(work([1]), Setting(1), FREE, batches=0)


# Whatever the setting

_SETTINGS = st.builds(
    Setting,
    num_workers=st.integers(0, 6),
    prefetch_factor=st.integers(1, 4),
    pin_memory=st.booleans(),
    persistent_workers=st.booleans(),
    in_order=st.sampled_from([None, True, False]),
)
_COSTS = st.floats(0, 1000).map(lambda value: round(value, 1))


@settings(max_examples=150, deadline=None)
@given(
    setting=_SETTINGS,
    cpu=st.lists(_COSTS, min_size=1, max_size=12),
    step=_COSTS,
    wait=_COSTS,
    fixed=st.fixed_dictionaries(
        dict.fromkeys("get_ns pin_ns pickle_ns spawn_ns boot_ns shutdown_ns".split(), _COSTS)
    ),
    step_cores=st.sampled_from([0.0, 1.0, 2.5]),
    cores=st.sampled_from([0.5, 1.0, 2.0, 64.0]),
    contention=st.sampled_from([0.0, 0.3]),
    epochs=st.integers(1, 3),
)
def test_every_batch_is_delivered_once_and_never_more_is_in_flight_than_asked_for(
    setting, cpu, step, wait, fixed, step_cores, cores, contention, epochs
):
    machine = Machine(cores, contention, latency_ns=wait / 2)
    costs = work(cpu, step, size=3, step_cores=step_cores, **fixed)
    result = simulate(costs, setting, machine, epochs=epochs)
    count = len(cpu)
    order = result.timeline.order.reshape(epochs, count)
    everything = np.arange(epochs * count).reshape(epochs, count)
    if setting.num_workers and setting.in_order is False:
        assert (np.sort(order, axis=1) == everything).all()
    else:
        assert (order == everything).all()
    depth = max(setting.num_workers * (setting.prefetch_factor or 1), 1)
    times = result.timeline
    assert (times.made_ns >= times.fetch_start_ns).all()
    assert (times.arrival_ns >= times.made_ns).all()
    assert (times.taken_ns >= times.arrival_ns).all()
    assert (np.diff(times.taken_ns[times.order]) >= 0).all()
    for epoch in range(epochs):
        # What was begun before a batch was taken had an index before that.
        begun = np.sort(times.fetch_start_ns[everything[epoch]])
        for place, batch in enumerate(order[epoch]):
            assert (begun < times.taken_ns[batch]).sum() <= place + depth
    assert result.peak_batches <= depth
    assert result.cores <= cores * (1 + 1e-9)
    # No more work was done in the time than the cores can do.
    done = sum(costs.cpu_ns) * epochs + costs.step_ns[0] * step_cores * count * epochs
    assert done <= result.seconds * 1e9 * cores * (1 + 1e-9) + 1e-6
    assert 0 <= result.wait_share <= 1 + 1e-9
    # A worker makes one batch at a time.
    for worker in range(setting.num_workers):
        mine = np.flatnonzero(times.worker == worker)
        mine = mine[np.argsort(times.fetch_start_ns[mine], kind="stable")]
        assert (times.fetch_start_ns[mine][1:] >= times.made_ns[mine][:-1] - 1e-6).all()


@settings(max_examples=60, deadline=None)
@given(
    cores=st.floats(0.1, 100),
    contention=st.floats(0, 2),
    others=st.floats(0, 5),
    demand=st.floats(0.1, 500),
)
def test_cores_are_never_overused(cores, contention, others, demand):
    machine = Machine(cores, contention, others=others)
    assert machine.pace(demand) * demand <= cores * (1 + 1e-9)
    assert machine.pace(demand) <= 1 + 1e-9
    assert machine.pace(demand * 1.5) <= machine.pace(demand) * (1 + 1e-9)


def test_it_is_the_same_every_time():
    random = np.random.default_rng(3)
    costs = work(random.gamma(2, 50, 40), 7, size=4, wait=30)
    first, second = (
        simulate(costs, Setting(3, 2), Machine(2), batches=100, seed=5) for _ in range(2)
    )
    assert taken(first) == taken(second)


# The kernel


def test_a_pool_is_shared_by_weight_and_time():
    loop = EventLoop()
    pool = loop.pool(lambda demand: min(1.0, 2 / demand), lambda demand: min(demand, 2.0))
    ended = {}

    def job(name, delay, amount, weight):
        yield loop, delay, 1.0
        yield pool, amount, weight
        ended[name] = loop.now

    for args in (("a", 0, 10, 1), ("b", 0, 10, 2), ("c", 5, 10, 1)):
        loop.resume(job(*args))
    loop.run()
    # Three want two cores: 2/3 each, until c comes at 5 with 10/3 done; then 1/2 each.
    assert ended["a"] == ended["b"] == pytest.approx(5 + (10 - 10 / 3) * 2)
    assert ended["c"] == pytest.approx(ended["a"] + 10 - (ended["a"] - 5) / 2)
    assert pool.used == pytest.approx(2 * ended["a"] + (ended["c"] - ended["a"]))


def test_a_queue_hands_over_in_turn():
    loop = EventLoop()
    queue: Queue = Queue(loop)
    got = []

    def reader(name):
        got.append((name, (yield queue, 0.0, 1.0)))

    def writer():
        yield loop, 1.0, 1.0
        for item in "xyz":
            queue.put(item)

    for process in (reader("a"), reader("b"), writer()):
        loop.resume(process)
    loop.run()
    assert got == [("a", "x"), ("b", "y")]
    assert len(queue) == 1


# What binds


@pytest.mark.parametrize(
    ("resource", "costs", "setting", "machine"),
    [
        ("consumer", work([10] * 50, 20), Setting(2), Machine(8)),
        ("workers", work([10] * 50, 1), Setting(2), Machine(8)),
        ("workers", work([10] * 50, 1), Setting(0), Machine(8)),
        ("cores", work([10] * 50, 1), Setting(4), Machine(2)),
        ("start-up", work([10] * 50, 1, boot_ns=5000), Setting(2), Machine(8)),
        ("handover", work([10] * 50, 1, get_ns=50), Setting(4), Machine(8)),
        ("prefetch", work(([100] + [10] * 9) * 9, 14), Setting(4, 1), Machine(8)),
        ("storage", work([0] * 50, read=100), Setting(4), Machine(8, bandwidth=10e9)),
    ],
)
def test_what_binds(resource, costs, setting, machine):
    result = simulate(costs, setting, machine)
    bound = binding(costs, result, machine, batches=len(costs.size))
    assert bound.resource == resource
    assert bound.reason.endswith(".")
    assert {gain.resource for gain in bound.gains} > {"workers", "consumer", "cores"}
