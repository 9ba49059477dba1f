"""At what a thread is, by the frames of its stack: stacks as py-spy read them of real programs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from lotus.analysis.attached.evidence import phases
from lotus.attach.stacks import stack_phases
from lotus.attach.stacks.source_lines import SourceLines, SourceLoop
from lotus.attach.stacks.stack_phases import Label, Site
from native_map.recording.python_frame import Frame

TORCH = "/env/lib/python3.11/site-packages/torch/utils/data"
LOADER, WORKER = f"{TORCH}/dataloader.py", f"{TORCH}/_utils/worker.py"
FETCH, COLLATE = f"{TORCH}/_utils/fetch.py", f"{TORCH}/_utils/collate.py"
LIBRARY = "/env/lib/python3.11/site-packages"
VISION = "/env/lib/python3.11/site-packages/torchvision"
QUEUES = "/usr/lib/python3.11/multiprocessing"
TRAIN = "/app/train.py"
MAIN = ["<module> /app/train.py:65", "main /app/train.py:59"]
NEXT = [*MAIN, f"_BaseDataLoaderIter.__next__ {LOADER}:725"]
BEGINS = [*MAIN, f"DataLoader.__iter__ {LOADER}:500"]
STATEFUL = "/env/lib/python3.11/site-packages/torchdata/stateful_dataloader"
IN_QUEUE = [
    *NEXT,
    f"_MultiProcessingDataLoaderIter._next_data {LOADER}:1507",
    f"_MultiProcessingDataLoaderIter._get_data {LOADER}:1466",
    f"_MultiProcessingDataLoaderIter._try_get_data {LOADER}:1293",
]
FORKED = [
    *MAIN,
    f"DataLoader.__iter__ {LOADER}:500",
    f"_MultiProcessingDataLoaderIter.__init__ {LOADER}:1178",
    f"Popen._launch {QUEUES}/popen_fork.py:71",
    f"_worker_loop {WORKER}:375",
]
SAMPLE = [
    f"_MapDatasetFetcher.fetch {FETCH}:54",
    f"_MapDatasetFetcher.fetch.<locals>.<listcomp> {FETCH}:54",
    f"DatasetFolder.__getitem__ {VISION}/datasets/folder.py:247",
]
SITE = Site("main", TRAIN, 59, 60, 61)


class Sources:
    """The lines that matter of the programs whose stacks these are."""

    TEXTS: ClassVar = {
        (FETCH, 54): "data = [self.dataset[idx] for idx in possibly_batched_index]",
        (FETCH, 57): "return self.collate_fn(data)",
        (FETCH, 33): "data.append(next(self.dataset_iter))",
        (f"{VISION}/datasets/folder.py", 245): "sample = self.loader(path)",
        (f"{VISION}/datasets/folder.py", 247): "sample = self.transform(sample)",
        ("/app/data.py", 30): "return self.augment(picture)",
        ("/app/data.py", 32): "return self.augment(np.inner(picture, self.mean))",
        ("/app/data.py", 33): "return [self.augment(picture) for picture in pictures]",
        ("/app/data.py", 34): "x, y = self.transform(x, y), z  # both",
        ("/app/data.py", 31): "return self.transform(picture)",
        (LOADER, 644): "self._sampler_iter = iter(self._index_sampler)",
        (WORKER, 335): "r = index_queue.get(timeout=MP_STATUS_CHECK_INTERVAL)",
    }

    def text(self, file: str, line: int) -> str:
        return self.TEXTS.get((file, line), "")

    def qualified_name(self, file: str, line: int) -> str:
        names = {("/app/data.py", 12): "Blur.__call__", ("/app/data.py", 33): "Pictures.all"}
        return names.get((file, line), "")

    def are_kin(self, one: str, other: str, files: Iterable[str]) -> bool:
        return one == other or {one, other} == {"Pictures", "Base"}

    def comprehension(
        self, file: str, line: int, function: str, *, begins: bool = False
    ) -> SourceLoop | None:
        return None

    def loop(self, file: str, line: int) -> SourceLoop | None:
        if file == TRAIN and 59 <= line <= 61:
            return SourceLoop(59, 60, 61)
        if file == TRAIN and 55 <= line <= 64:
            return SourceLoop(55, 56, 64)
        if file == "/env/tqdm.py":
            return SourceLoop(10, 11, 12, hands_on=True)
        return None


def stack(*words: str) -> list[Frame]:
    frames = []
    for word in words:
        function, _, place = word.partition(" ")
        file, _, line = place.rpartition(":")
        frames.append(Frame(function, file, int(line)))
    return frames


def of_main(*words: str, sites: Sequence[Site] = (SITE,)) -> Label:
    return stack_phases.label_main(stack(*words), sites, Sources())


def of_worker(*words: str) -> Label:
    return stack_phases.label_worker(stack(*words), [SITE], Sources())


POLL = [f"Queue.get {QUEUES}/queues.py:113", f"Connection._poll {QUEUES}/connection.py:440"]
UNPICKLE = [f"Queue.get {QUEUES}/queues.py:122", "rebuild_storage_fd /env/torch/reductions.py:180"]


@pytest.mark.parametrize(
    ("words", "phase"),
    [
        ([*IN_QUEUE, *POLL, "wait /usr/lib/python3.11/selectors.py:415"], phases.WAIT),
        ([*IN_QUEUE, *UNPICKLE], phases.RECEIVE),
        ([*IN_QUEUE, f"Queue.get {QUEUES}/queues.py:122"], phases.RECEIVE),
        ([*NEXT, f"_BaseDataLoaderIter._next_index {LOADER}:690"], phases.SAMPLER),
        ([*NEXT, f"_MultiProcessingDataLoaderIter._process_data {LOADER}:1500"], phases.NEXT),
        ([*MAIN, f"DataLoader.__iter__ {LOADER}:500"], phases.STARTUP),
        ([*BEGINS, f"_MPIter._next_index {LOADER}:690", "Own.__iter__ /app/s.py:3"], phases.DRAW),
        ([*BEGINS, f"_MPIter.__init__ {LOADER}:644", "Own.__iter__ /app/s.py:3"], phases.DRAW),
        ([*BEGINS, f"_MPIter.__init__ {LOADER}:1178", "Process.start /p.py:3"], phases.STARTUP),
        ([*NEXT, f"_MPIter._take_snapshot {STATEFUL}/stateful_dataloader.py:9"], phases.STATE),
        ([*NEXT, f"_MPIter._shutdown_workers {LOADER}:9"], phases.SHUTDOWN),
        (["<module> /app/train.py:65", "main /app/train.py:60", "step /app/m.py:3"], phases.STEP),
        (["<module> /app/train.py:65", "main /app/train.py:60", f"DataLoader.__len__ {LOADER}:520",
          "Packed.__len__ /app/m.py:3"], phases.STEP),
        (["main /app/train.py:63", "save /app/m.py:9"], phases.OUTSIDE),
        (["<module> /app/train.py:1", "_find_and_load <frozen importlib._bootstrap>:1"],
         phases.IMPORTS),
    ],
)  # fmt: skip
def test_phases_of_the_main_process(words: list[str], phase: str) -> None:
    assert of_main(*words).phase == phase


def test_a_snapshot_of_a_worker_is_no_start_up() -> None:
    loop = f"_worker_loop {STATEFUL}/worker.py:300"
    state = f"_make_state_dict {STATEFUL}/worker.py:330"
    label = of_worker(*FORKED[:-1], loop, state, "Records.state_dict /app/data.py:9")
    assert (label.phase, label.loop) == (phases.SNAPSHOT, 0)
    assert label.chain[-1].function == "Records.state_dict"


def test_without_workers_the_main_process_makes_batches_within_next() -> None:
    single = [*NEXT, f"_SingleProcessDataLoaderIter._next_data {LOADER}:780", *SAMPLE]
    label = of_main(*single, f"default_loader {VISION}/datasets/folder.py:284")
    assert (label.phase, label.loop) == (phases.OPERATION, 0)


@pytest.mark.parametrize(
    ("words", "phase", "name"),
    [
        ([f"Compose.__call__ {VISION}/transforms/transforms.py:95",
          "Module._wrapped_call_impl /env/torch/nn/modules/module.py:1751",
          f"RandomResizedCrop.forward {VISION}/transforms/transforms.py:990"],
         phases.OPERATION, "RandomResizedCrop"),
        ([f"Compose.__call__ {VISION}/transforms/transforms.py:95", "blur /app/data.py:3"],
         phases.OPERATION, "blur"),
        ([f"Compose.forward {VISION}/transforms/v2/_container.py:51",
          f"Transform.forward {VISION}/transforms/v2/_transform.py:68",
          f"Resize.transform {VISION}/transforms/v2/_geometry.py:162"],
         phases.OPERATION, "Resize"),
        ([f"Compose.forward {VISION}/transforms/v2/_container.py:51",
          f"_RandomApplyTransform.forward {VISION}/transforms/v2/_transform.py:160",
          f"RandomHorizontalFlip.transform {VISION}/transforms/v2/_geometry.py:30"],
         phases.OPERATION, "RandomHorizontalFlip"),
        # A helper of all of them is none.
        ([f"Compose.forward {VISION}/transforms/v2/_container.py:51",
          f"Transform.forward {VISION}/transforms/v2/_transform.py:62",
          "tree_flatten /env/torch/utils/_pytree.py:1200", "helper /env/torch/utils/_pytree.py:9"],
         phases.OPERATION, "Transform"),
        ([f"Compose.__call__ {VISION}/transforms/transforms.py:95",
          f"Lambda.__call__ {VISION}/transforms/transforms.py:500", "noise /app/data.py:8"],
         phases.OPERATION, "noise"),
        ([], phases.DATASET, ""),
    ],
)  # fmt: skip
def test_operations_are_named_as_trace_names_them(words: list[str], phase: str, name: str) -> None:
    label = of_worker(*FORKED, *SAMPLE, *words)
    assert (label.phase, label.name, label.loop) == (phase, name, 0)


def test_the_decoder_of_a_folder_data_set_is_the_operation_loader() -> None:
    folder = f"DatasetFolder.__getitem__ {VISION}/datasets/folder.py:245"
    label = of_worker(*FORKED, *SAMPLE[:2], folder, f"open_it {VISION}/datasets/folder.py:9")
    assert (label.phase, label.name) == (phases.OPERATION, "Loader")


def test_a_transform_that_the_data_set_calls_itself_is_an_operation() -> None:
    own = [*FORKED, *SAMPLE[:2], "Pictures.__getitem__ /app/data.py:31"]
    assert of_worker(*own, "Ask.__call__ /app/data.py:5").name == "Ask"
    assert of_worker(*own, "sharpen /app/data.py:9").name == "sharpen"


def test_the_data_sets_own_method_is_no_operation_nor_is_what_else_its_line_calls() -> None:
    own = [*FORKED, *SAMPLE[:2], "Pictures.__getitem__ /app/data.py:30"]
    for function in ("Pictures.augment /app/data.py:9", "Base.augment /app/base.py:9"):
        assert of_worker(*own, function).phase == phases.DATASET
    assert of_worker(*own, "Ask.__call__ /app/data.py:5").name == "Ask"
    other = [*own[:-1], "Pictures.__getitem__ /app/data.py:32"]
    assert of_worker(*other, f"inner {LIBRARY}/numpy/core.py:3").phase == phases.DATASET
    for name in ("Pictures.all.<locals>.<listcomp>", "<listcomp>"):
        listed = [*own[:-1], "Pictures.all /app/data.py:33", f"{name} /app/data.py:33"]
        assert of_worker(*listed, "Base.augment /app/base.py:9").phase == phases.DATASET


@pytest.mark.parametrize("line", [31, 34])
def test_a_method_of_another_object_and_a_librarys_function_are_operations(line: int) -> None:
    own = [*FORKED, *SAMPLE[:2], f"Pictures.__getitem__ /app/data.py:{line}"]
    assert of_worker(*own, "Aug.transform /app/aug.py:9").name == "Aug"
    gaussian = f"gaussian {LIBRARY}/skimage/filters/_gaussian.py:9"
    inner = f"correlate1d {LIBRARY}/scipy/ndimage/_filters.py:3"
    assert of_worker(*own, gaussian, inner).name == "gaussian"
    # A decorated method of the data set.
    decorated = f"decorate_context {LIBRARY}/torch/utils/_contextlib.py:9"
    assert of_worker(*own, decorated, "Pictures.transform /app/d.py:9").phase == phases.DATASET


def test_own_code_has_its_functions() -> None:
    label = of_worker(*FORKED, *SAMPLE[:2], "Houses.__getitem__ /app/d.py:4", "parse /app/d.py:9")
    assert label.phase == phases.DATASET
    assert [frame.function for frame in label.chain] == ["Houses.__getitem__", "parse"]


def test_collate_is_told_by_the_line_that_calls_it() -> None:
    fetch = f"_MapDatasetFetcher.fetch {FETCH}:57"
    assert of_worker(*FORKED, fetch, "pad /app/data.py:3").phase == phases.COLLATE
    stream = f"_IterableDatasetFetcher.fetch {FETCH}:33"
    assert of_worker(*FORKED, stream, "lines /app/data.py:3").phase == phases.DATASET


def test_an_idle_worker_and_one_that_starts() -> None:
    waits = [*FORKED[:-1], f"_worker_loop {WORKER}:335"]
    assert of_worker(*waits, *POLL).phase == phases.IDLE
    assert of_worker(*waits).phase == phases.IDLE
    assert of_worker(*FORKED[:-1]).phase == phases.STARTUP


@pytest.mark.parametrize(
    ("name", "words", "phase"),
    [
        ("QueueFeederThread", [f"Queue._feed {QUEUES}/queues.py:231",
                               "Condition.wait /usr/lib/python3.11/threading.py:327"],
         phases.FEEDER_IDLE),
        ("QueueFeederThread", [f"Queue._feed {QUEUES}/queues.py:244",
                               "reduce_storage /env/torch/multiprocessing/reductions.py:1"],
         phases.SEND),
        ("Thread-3", ["_pin_memory_loop " + TORCH + "/_utils/pin_memory.py:30"], phases.PIN),
        ("logger", ["work /app/log.py:3"], phases.HELPER),
        ("tqdm", ["Event.wait /usr/lib/python3.11/threading.py:629"], phases.HELPER_IDLE),
    ],
)  # fmt: skip
def test_other_threads(name: str, words: list[str], phase: str) -> None:
    assert stack_phases.label_helper(name, stack(*words)).phase == phase


def test_the_loop_is_where_both_next_and_the_step_are_seen() -> None:
    bar = ["<module> /app/train.py:65", "main /app/train.py:59", "tqdm.__iter__ /env/tqdm.py:11"]
    waits = stack(*bar, f"_BaseDataLoaderIter.__next__ {LOADER}:725")
    steps = stack("<module> /app/train.py:65", "main /app/train.py:60", "step /app/model.py:3")
    assert stack_phases.find_loops([waits, steps], Sources()) == [SITE]
    # Neither where the bar itself is seen at work, nor where no step is.
    draws = stack(*bar, "tqdm.update /env/tqdm.py:90")
    assert stack_phases.find_loops([waits, steps, draws], Sources()) == [SITE]
    assert stack_phases.find_loops([waits, draws], Sources()) == [SITE]
    alone = stack(*bar[2:], f"_BaseDataLoaderIter.__next__ {LOADER}:725")
    assert [site.file for site in stack_phases.find_loops([alone], Sources())] == ["/env/tqdm.py"]
    assert stack_phases.find_loops([alone, waits], Sources()) == [SITE]


def test_a_loop_whose_source_is_not_there_is_its_function() -> None:
    waits = stack(
        "<module> /gone.py:9", "fit /gone.py:5", f"_BaseDataLoaderIter.__next__ {LOADER}:7"
    )
    steps = stack("<module> /gone.py:9", "fit /gone.py:6", "step /gone.py:2")
    (site,) = stack_phases.find_loops([waits, steps], Sources())
    assert (site.function, site.last) == ("fit", 0)
    assert stack_phases.label_main(steps, [site], Sources()).phase == phases.STEP


def test_a_loop_in_a_cell_of_a_notebook_is_the_cell_not_what_runs_cells() -> None:
    class Shell(Sources):
        """The source of what runs the cells is there, and has a loop around them."""

        def text(self, file: str, line: int) -> str:
            return "await code()" if file.startswith(LIBRARY) else super().text(file, line)

        def loop(self, file: str, line: int) -> SourceLoop | None:
            return SourceLoop(3, 4, 5) if file.startswith(LIBRARY) else super().loop(file, line)

    next_ = f"_BaseDataLoaderIter.__next__ {LOADER}:7"
    runs = ["<module> <frozen runpy>:88", f"run_ast_nodes {LIBRARY}/shell.py:4"]
    cell = "/tmp/ipykernel_7/4711.py"
    site = Site("<module>", cell, 18, 0, 0)
    waits = stack(*runs, f"<module> {cell}:18", next_)
    steps = stack(*runs, f"<module> {cell}:20", "step /app/model.py:3")
    before = stack(*runs, "<module> /tmp/ipykernel_7/12.py:1", "rest /app/model.py:9")
    for stacks in ([waits, steps, before], [waits, before]):
        assert stack_phases.find_loops(stacks, Shell()) == [site]
    assert stack_phases.label_main(steps, [site], Shell()).phase == phases.STEP
    assert stack_phases.label_main(before, [site], Shell()).phase == phases.OUTSIDE
    # A bar around the loader, whose source is there, is not the loop either.
    bar = stack(*runs, f"<module> {cell}:18", "tqdm.__iter__ /env/tqdm.py:11", next_)
    assert stack_phases.find_loops([bar, steps], Shell()) == [site]


def test_a_loop_in_code_that_was_executed_from_a_string_is_that_code() -> None:
    class Known(Sources):
        """The line that executes the code is known, and in no loop."""

        def text(self, file: str, line: int) -> str:
            return "exec(code)" if (file, line) == (TRAIN, 70) else super().text(file, line)

    code = "<module> /app/train.py:70"
    waits = stack(code, "<module> <string>:19", f"_BaseDataLoaderIter.__next__ {LOADER}:7")
    steps = stack(code, "<module> <string>:21")
    site = Site("<module>", "<string>", 19, 0, 0)
    assert stack_phases.find_loops([waits, steps], Known()) == [site]


def test_code_without_source_that_calls_the_loader_for_a_loop_is_not_the_loop() -> None:
    """As what wraps `next` and was made by exec."""
    wrap = "stamped <string>:15"
    waits = stack(*MAIN, wrap, f"_BaseDataLoaderIter.__next__ {LOADER}:7")
    stamps = stack(*MAIN, wrap, "stamp <string>:5")
    steps = stack("<module> /app/train.py:65", "main /app/train.py:60", "step /app/model.py:3")
    assert stack_phases.find_loops([waits, stamps, steps], Sources()) == [SITE]


IN_LIST = """
def main(loader):
    for epoch in range(3):
        losses = [step(batch) for batch in loader]
"""


@pytest.mark.parametrize("inlined", [True, False])
def test_a_comprehension_over_a_loader_is_the_loop(tmp_path: Path, inlined: bool) -> None:
    file = tmp_path / "train.py"
    file.write_text(IN_LIST)
    called = f"<module> {file}:9", f"main {file}:4"
    own = called if inlined else (*called, f"main.<locals>.<listcomp> {file}:4")
    waits = stack(*own, f"_BaseDataLoaderIter.__next__ {LOADER}:7")
    steps = stack(*own, "step /app/model.py:3")
    begins = stack(*called, f"DataLoader.__iter__ {LOADER}:5")
    sites = stack_phases.find_loops([waits, steps, begins], SourceLines())
    makers = stack_phases.made_elsewhere([waits, steps, begins], sites)
    labels = [
        stack_phases.of_taker(stack_phases.label_main(each, sites, SourceLines()), makers)
        for each in (waits, steps, begins)
    ]
    assert [label.phase for label in labels] == [phases.NEXT, phases.STEP, phases.STARTUP]
    (loop,) = {label.loop for label in labels}
    site = sites[loop]
    assert (site.function, site.head, site.last) == (own[-1].split()[0], 4, 4)


@pytest.mark.parametrize("inlined", [True, False])
def test_a_comprehension_that_only_makes_iterators_is_no_loop(
    tmp_path: Path, inlined: bool
) -> None:
    combined = tmp_path / "combined.py"
    combined.write_text("def begin(loaders):\n    return [iter(loader) for loader in loaders]\n")
    file = tmp_path / "train.py"
    file.write_text("def main(data):\n    for batch in data:\n        step(batch)\n")
    main = f"main {file}:2"
    making = (
        f"begin {combined}:2",
        *(() if inlined else (f"begin.<locals>.<listcomp> {combined}:2",)),
    )
    begins = stack(main, *making, f"DataLoader.__iter__ {LOADER}:5")
    waits = stack(main, f"_BaseDataLoaderIter.__next__ {LOADER}:7")
    (site,) = stack_phases.find_loops([begins, waits], SourceLines())
    assert (site.function, site.head) == ("main", 2)


TWO_LOOPS = """
def main(first, second):
    for epoch in range(3):
        for batch in first:
            train(batch)
        errors = [
            test(batch)
            for batch in second
        ]
"""


def test_workers_that_a_comprehension_starts_are_not_those_of_the_loop_before(
    tmp_path: Path,
) -> None:
    """It calls `iter` in the function around, before it has a frame of its own."""
    file = tmp_path / "train.py"
    file.write_text(TWO_LOOPS)
    in_list = f"main {file}:7", f"main.<locals>.<listcomp> {file}:8"
    next_ = f"_BaseDataLoaderIter.__next__ {LOADER}:7"
    waits, tests = stack(*in_list, next_), stack(*in_list, "test /app/model.py:3")
    trains = stack(f"main {file}:4", next_)
    stacks = [*[trains] * 9, stack(f"main {file}:5", "train /app/model.py:5"), waits, tests]
    begins = stack(f"main {file}:8", *FORKED[2:], *SAMPLE)
    sources = SourceLines()
    sites = stack_phases.find_loops([*stacks, begins], sources)
    makers = stack_phases.made_elsewhere([*stacks, begins], sites)
    worker, test, train = (
        stack_phases.of_taker(of_thread(each, sites, sources), makers).loop
        for of_thread, each in (
            (stack_phases.label_worker, begins),
            (stack_phases.label_main, tests),
            (stack_phases.label_main, trains),
        )
    )
    assert worker == test != train


ON_THE_WAY = """
def batches(loader):
    for batch in loader:
        yield vary(batch)

def main(loader):
    for batch in batches(loader):
        step(batch)
"""


def test_what_a_generator_does_to_each_batch_is_part_of_the_step(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(ON_THE_WAY)
    wraps = f"main {file}:7", f"batches {file}:4"
    waits = stack(f"main {file}:7", f"batches {file}:3", f"_BaseDataLoaderIter.__next__ {LOADER}:7")
    steps, varies = stack(f"main {file}:8"), stack(*wraps, "vary /app/data.py:9")
    sources = SourceLines()
    (site,) = stack_phases.find_loops([waits, steps, varies], sources)
    label = stack_phases.label_main(varies, [site], sources)
    assert (label.phase, label.loop) == (phases.STEP, 0)
    assert label.chain[-1].function == "vary"
    # What another function does at the loop's first line, before a batch is asked for, is not.
    before = stack(f"main {file}:7", "make_loader /app/data.py:20")
    assert stack_phases.label_main(before, [site], sources).phase == phases.OUTSIDE


def test_a_loader_that_next_never_shows_is_found_by_its_workers() -> None:
    step = stack("<module> /app/train.py:65", "main /app/train.py:60", "step /app/model.py:3")
    assert stack_phases.find_loops([step, stack(*FORKED, *SAMPLE)], Sources()) == [SITE]


def test_an_iterator_that_is_made_in_another_loop_is_of_the_loop_that_takes_its_batches() -> None:
    waits = stack(*NEXT)
    steps = stack("<module> /app/train.py:65", "main /app/train.py:60", "step /app/model.py:3")
    forks = stack("<module> /app/train.py:65", "main /app/train.py:57", *FORKED[2:], *SAMPLE)
    sites = stack_phases.find_loops([waits, steps, forks], Sources())
    epochs = sites.index(Site("main", TRAIN, 55, 56, 64))
    makers = stack_phases.made_elsewhere([waits, steps, forks], sites)
    assert makers == {epochs: sites.index(SITE)}

    def label(frames: Sequence[Frame]) -> Label:
        return stack_phases.of_taker(stack_phases.label_main(frames, sites, Sources()), makers)

    worker = stack_phases.label_worker(forks, sites, Sources())
    assert worker.loop == epochs
    assert stack_phases.of_taker(worker, makers).loop == sites.index(SITE)
    start = label(stack("<module> /app/train.py:65", "main /app/train.py:57", FORKED[2]))
    assert (start.phase, start.loop) == (phases.STARTUP, sites.index(SITE))
    between = label(stack("<module> /app/train.py:65", "main /app/train.py:63", "save /app/m.py:9"))
    assert (between.phase, between.loop) == (phases.OUTSIDE, -1)
    assert stack_phases.made_elsewhere([steps, stack(*FORKED)], [SITE]) == {}


def test_the_step_of_a_frameworks_loop_is_what_it_calls() -> None:
    """Not the program's line that calls the framework."""
    fit = "/env/lib/python3.11/site-packages/lightning/pytorch/loops/training_epoch_loop.py"
    site = Site("_TrainingEpochLoop.run", fit, 150, 151, 153)
    above = ["<module> /app/train.py:65", f"_TrainingEpochLoop.run {fit}:152"]
    engine = "/env/lib/python3.11/site-packages/torch/autograd/graph.py"
    inner = stack(*above, f"backward {fit}:300", f"_run {engine}:11")
    label = stack_phases.label_main(inner, [site], Sources())
    assert [frame.function for frame in label.chain] == ["backward", "_run"]
    own = stack(*above, "Model.training_step /app/model.py:14", f"_run {engine}:11")
    label = stack_phases.label_main(own, [site], Sources())
    assert [frame.function for frame in label.chain] == ["Model.training_step"]


def test_an_iterator_above_its_loop_is_of_that_loop_not_of_the_one_around() -> None:
    """As in Lightning, whose validation runs within the loop over the training's batches."""
    validation = Site("validate", "/app/validate.py", 20, 21, 22)
    within = ["<module> /app/train.py:65", "main /app/train.py:60"]
    begins = [*within, "validate /app/validate.py:18", f"DataLoader.__iter__ {LOADER}:500"]
    forked = [*begins, f"Popen._launch {QUEUES}/popen_fork.py:71", f"_worker_loop {WORKER}:335"]
    sites = [SITE, validation]
    assert stack_phases.label_main(stack(*begins), sites, Sources()).loop == 1
    assert stack_phases.label_worker(stack(*forked), sites, Sources()).loop == 1
    # A function without a loop of its own makes it for the loop around.
    other = [*within, "made /app/other.py:18", f"DataLoader.__iter__ {LOADER}:500"]
    assert stack_phases.label_main(stack(*other), sites, Sources()).loop == 0
