"""`python -m lotus` is `lotus`."""

import sys

from lotus.cli import main

if __name__ == "__main__":
    sys.exit(main())
