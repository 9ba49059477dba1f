"""`lotus trace --nvtx`: the ranges that another profiler gets, in every process of a program."""

from collections import Counter

from tests.integration.conftest import Ended, command_of

_SAMPLE = ["+Add", "-", "+Refuse", "-"]
FIRST = ["+fetch", *_SAMPLE, *_SAMPLE, "+collate", "-", "-"]
SECOND = ["+fetch", *_SAMPLE, *_SAMPLE, "-"]  # its last sample is refused: nothing to collate
PROBE = ["+lotus", "-"]  # whether the library works
OUT = """\
none [1, 2]
none four
fork [1, 2]
fork ValueError: four
spawn [1, 2]
spawn ValueError: four
"""


def noted(ended: Ended) -> list[list[str]]:
    """The ranges of each process that opened any."""
    files = ended.truth.parent.glob(f"{ended.truth.name}.*")
    return [file.read_text().split() for file in files]


def test_each_process_names_what_it_does_and_closes_it_whatever_is_raised(traced) -> None:
    ended = traced("ranged.py", "nvtx", "none", "fork", "spawn", options=("--nvtx",))
    assert (ended.code, ended.out.decode(), ended.err) == (0, OUT, b"")
    waits = ["+wait", *FIRST, "-", "+wait", *SECOND, "-"] + 2 * ["+wait", "-", "+wait", "-"]
    forked = [*FIRST, *SECOND]  # it knows from its parent that the library works
    expected = [[*PROBE, *waits], forked, [*PROBE, *forked]]
    assert Counter(map(tuple, noted(ended))) == Counter(map(tuple, expected))


def test_without_the_library_one_line_says_so_and_all_is_recorded(torch, trace_command) -> None:
    words = command_of("ranged.py", ("missing", "none"))
    ended = trace_command(*words, options=("--nvtx",))
    line, *rest = ended.err.decode().splitlines()
    assert line.startswith("lotus: --nvtx names no ranges (torch.cuda.nvtx: RuntimeError: NVTX")
    assert line.endswith("all else is recorded; for ranges type: pip install nvtx")
    assert not [other for other in rest if other.startswith("lotus: ")]
    assert (ended.code, ended.out.decode()) == (0, "none [1, 2]\nnone four\n")
    assert len(ended.run.ops) == 8
