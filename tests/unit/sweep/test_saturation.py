"""What saturates, from measures that are made up for one part of the machine each."""

import math

import pytest

from lotus.sweep import saturation as kinds
from lotus.sweep.knee import knee
from lotus.sweep.saturation import change, limits

RATES = {1: 100.0, 2: 200.0, 4: 300.0, 8: 302.0}


def table(repeats=3, rates=RATES, **measures):
    """workers -> measure -> repeats; a measure is a number, or one for each number of workers."""
    usual = {"input_share": 0.8, "step_share": 0.1, "wait_share": 0.85, "idle_share": 0.01,
             "queue_share": 0.0, "fetch_utilisation": 0.3, "utilisation": 0.3, "off_share": 0.01,
             "storage_share": 0.0, "read_bytes": 0.0, "cpu_us_per_sample": 1000.0}  # fmt: skip
    columns = {}
    for place, workers in enumerate(rates):
        values = {"samples_per_s": rates[workers], **usual}
        for name, value in measures.items():
            values[name] = value[place] if isinstance(value, (list, tuple)) else value
        # A spread of 1 %, the same in every measure.
        columns[workers] = {
            name: [value * (1 + 0.01 * (number - (repeats - 1) / 2)) for number in range(repeats)]
            for name, value in values.items()
        }
    return columns


def judged(repeats=3, rates=RATES, cores=16.0, **measures):
    made = table(repeats, rates, **measures)
    return limits(made, knee(rates_of(made)), cores)


def rates_of(made):
    return {workers: measures["samples_per_s"] for workers, measures in made.items()}


def test_nothing_that_tells_is_not_known():
    causes = judged()
    assert [cause.kind for cause in causes] == [kinds.UNKNOWN]
    assert "do not show why" in causes[0].text


def test_a_loop_that_does_not_wait_is_bound_by_its_consumer():
    causes = judged(input_share=0.02, step_share=0.97, queue_share=0.5)
    assert [cause.kind for cause in causes] == [kinds.CONSUMER]
    assert "97%" in causes[0].text
    assert causes[0].evidence["step_share"] == pytest.approx(0.97)


def test_a_loop_that_mostly_starts_and_ends():
    causes = judged(edges_share=0.6, input_share=0.03, step_share=0.37)
    assert [cause.kind for cause in causes] == [kinds.EDGES]
    assert "60%" in causes[0].text


def test_a_rate_that_grows_to_the_end_has_met_no_limit():
    causes = judged(rates={1: 100.0, 2: 200.0, 4: 400.0})
    assert [cause.kind for cause in causes] == [kinds.GROWING]
    assert "4 workers, the most" in causes[0].text


@pytest.mark.parametrize(
    "measures",
    [{"fetch_utilisation": 0.9}, {"queue_share": 0.4, "utilisation": 0.6}, {"utilisation": 0.97}],
)
def test_cores_that_are_used_up(measures):
    causes = judged(cores=4.0, **measures)
    assert [cause.kind for cause in causes] == [kinds.CORES]
    assert "the 4 cores" in causes[0].text
    assert causes[0].evidence["cores"] == 4


def test_cores_that_other_programs_have():
    causes = judged(queue_share=0.7, fetch_utilisation=0.16, utilisation=0.3)
    assert [cause.kind for cause in causes] == [kinds.OTHER_PROGRAMS]
    assert "70% of their time" in causes[0].text
    assert "uses 30% of the cores" in causes[0].text


@pytest.mark.parametrize(("kind", "words"), [("pin", "pinned memory"), ("main-process", "queue")])
def test_workers_that_idle_while_the_loop_waits(kind, words):
    causes = judged(idle_share=0.5, **{f"{kind}_owed_share": 0.6})
    assert [cause.kind for cause in causes] == [kinds.MAIN_PROCESS]
    assert words in causes[0].text
    assert "50%" in causes[0].text


def test_idle_workers_that_nothing_is_owed_to_tell_nothing():
    assert [cause.kind for cause in judged(idle_share=0.5)] == [kinds.UNKNOWN]


COST = [1000.0, 1100.0, 1400.0, 1900.0]


def test_a_sample_that_costs_more_cpu_time_without_counters():
    causes = judged(cpu_us_per_sample=COST)
    assert [cause.kind for cause in causes] == [kinds.SHARED_CPU]
    assert "1.90 times" in causes[0].text
    assert "hardware counters would show which" in causes[0].text
    assert causes[0].evidence["cpu_times"] == pytest.approx(1.9)


@pytest.mark.parametrize(
    ("front", "back", "kind"),
    [
        ([0.1, 0.1, 0.1, 0.1], [0.2, 0.3, 0.5, 0.7], kinds.BACKEND),
        ([0.2, 0.3, 0.5, 0.7], [0.1, 0.1, 0.1, 0.1], kinds.FRONTEND),
    ],
)
def test_the_end_of_the_pipeline_that_loses_more_slots(front, back, kind):
    causes = judged(cpu_us_per_sample=COST, frontend_bound=front, backend_bound=back)
    assert [cause.kind for cause in causes] == [kind]
    assert "70% of the slots empty instead of 20%" in causes[0].text


def test_slots_lost_a_sample_count_more_than_their_share():
    """The back end's share falls, and yet a sample loses more to it than to the front end."""
    causes = judged(
        cpu_us_per_sample=COST,
        frontend_bound=[0.1, 0.1, 0.12, 0.15], frontend_lost_per_sample=[1e5, 1e5, 2e5, 3e5],
        backend_bound=[0.5, 0.5, 0.48, 0.45], backend_lost_per_sample=[5e5, 6e5, 8e5, 9e5],
    )  # fmt: skip
    assert causes[0].kind == kinds.BACKEND


def test_dram_loads_stand_in_the_evidence_where_they_were_counted():
    causes = judged(cpu_us_per_sample=COST, frontend_bound=0.1, backend_bound=[0.2, 0.3, 0.4, 0.5],
                    dram_loads_per_sample=[10.0, 10.0, 20.0, 40.0])  # fmt: skip
    assert causes[0].evidence["dram_loads_first"] == pytest.approx(10)
    assert causes[0].evidence["dram_loads_last"] == pytest.approx(40)


def test_waiting_for_local_storage():
    causes = judged(off_share=0.6, storage_share=0.55, read_bytes=1e9)
    assert [cause.kind for cause in causes] == [kinds.STORAGE]


def test_waiting_for_what_is_no_local_storage():
    causes = judged(off_share=0.6, storage_share=0.0)
    assert [cause.kind for cause in causes] == [kinds.WAITING]
    assert "network, lock" in causes[0].text


def test_several_limits_are_all_said():
    causes = judged(fetch_utilisation=0.95, cpu_us_per_sample=COST)
    assert [cause.kind for cause in causes] == [kinds.CORES, kinds.SHARED_CPU]


def test_one_setting_tells_nothing():
    assert [cause.kind for cause in judged(rates={4: 100.0})] == [kinds.UNKNOWN]


def test_a_difference_within_the_noise_is_none():
    made = table()
    made[1]["cpu_us_per_sample"] = [600.0, 1000.0, 1800.0]
    made[8]["cpu_us_per_sample"] = [700.0, 1300.0, 2200.0]
    growth = change(made, "cpu_us_per_sample", 1, 8)
    assert growth.times > 1.15
    assert growth.low < 1 < growth.high
    assert not growth.grows
    assert limits(made, knee(rates_of(made)), 16)[0].kind == kinds.UNKNOWN


def test_one_repeat_gives_no_interval_and_a_clear_difference_counts():
    growth = change(table(1, cpu_us_per_sample=COST), "cpu_us_per_sample", 1, 8)
    assert growth.times == pytest.approx(1.9)
    assert math.isnan(growth.low)
    assert growth.grows


def test_what_was_not_measured_gives_no_limit():
    made = {workers: {"samples_per_s": [rate], "input_share": [0.5]}
            for workers, rate in RATES.items()}  # fmt: skip
    causes = limits(made, knee(rates_of(made)), math.nan)
    assert [cause.kind for cause in causes] == [kinds.UNKNOWN]
