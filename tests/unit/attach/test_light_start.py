"""That `lotus attach` looks at a program before it imports what only its report needs."""

import subprocess
import sys


def test_nothing_that_is_slow_to_import_is_imported_before_the_first_look() -> None:
    code = (
        "import sys\n"
        "from lotus import cli\n"
        "from lotus.attach import observation\n"
        "def attach(*args):\n"
        "    print(*sorted({'numpy', 'pandas', 'pyarrow', 'rich'} & {*sys.modules}))\n"
        "    sys.exit(0)\n"
        "observation.attach = attach\n"
        "cli.main(['attach', '1'])\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
