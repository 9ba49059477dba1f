"""A handler raises at a random moment, thousands of times: each exception must come out of the loop
once, and as it was.
"""

import random
import signal
import sys

from pipeline import Add, Numbers
from torch.utils.data import DataLoader

ROUNDS = 3000


class Late(TimeoutError):
    pass


class Mine(Exception):
    pass


class Interrupt(KeyboardInterrupt):
    pass


# Not those by which Python itself asks questions (KeyError in os.environ, TypeError in list).
KINDS = (Late, Mine, Interrupt, ValueError, OverflowError, OSError, RuntimeError, MemoryError)


def main():
    random.seed(int(sys.argv[1]))
    raised = []

    def handler(number, frame):
        raised.append(random.choice(KINDS)("mine", len(raised)))
        raise raised[-1]

    signal.signal(signal.SIGALRM, handler)
    data = Numbers(8, [Add(1), Add(2)])
    strange = []
    for number in range(ROUNDS):
        loader = DataLoader(data, batch_size=4, collate_fn=tuple)
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 6e-4))
            while len(raised) == number:
                for _ in loader:
                    pass
            strange.append((number, "swallowed"))
        except BaseException as error:
            if len(raised) != number + 1 or error is not raised[-1]:
                strange.append((number, repr(error)))
    print(len(raised), strange)
    print(list(DataLoader(data, batch_size=4, collate_fn=tuple)))


if __name__ == "__main__":
    main()
