"""Runs an unchanged script under torch.profiler.

    python torch_profiler.py TRACE.json SCRIPT [ARGUMENT ...]

The whole script, including the imports of its modules, runs inside one `torch.profiler.profile()`
of the CPU (and of the GPU, if there is one), without a schedule, stacks, shapes or memory. The
trace is exported at the end as Chrome's JSON. torch itself is imported before.
"""

import runpy
import sys

from torch.profiler import profile


def main() -> None:
    trace, script = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    with profile() as profiler:
        runpy.run_path(script, run_name="__main__")
    profiler.export_chrome_trace(trace)


if __name__ == "__main__":
    main()
