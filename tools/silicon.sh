#!/usr/bin/env bash
# What the counters of this machine are worth to lotus: known loops, training scripts, costs.
# Two minutes on two quiet cores, ten on busy ones. Writes one JSON and one Markdown file, named by CPU, kernel
# and date, into docs/silicon/. Options: see tools/silicon/measure.py --help.
#
#   make test (once, for the environment), then: tools/silicon.sh
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
"$python" -m lotus doctor || true
exec "$python" tools/silicon/measure.py "$@"
