"""Closes all descriptors within an operation and opens its own, or has few; argv says which.

Prints the batches and what is in its files: nobody else may read or write there.
"""

import os
import resource
import sys
import tempfile

from pipeline import Add, Numbers
from torch.utils.data import DataLoader

FILES = []
first_epoch = True


class Close:
    def __call__(self, value):
        if value == 9 and first_epoch:
            os.closerange(3, 4096)
            # Fewer than it takes to reach the numbers of a tracer; those it has are of its own.
            FILES.extend(opened(folder, f"a{n}") for n in range(200))
        if value == 25 and first_epoch:
            os.closerange(3, 4096)
        return value


def opened(folder, name):
    number = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(number, b"%d" % number)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def look(what):
    wrong = [
        number
        for number in FILES
        if (os.lseek(number, 0, os.SEEK_CUR), os.pread(number, 99, 0)) != (0, b"%d" % number)
    ]
    print(what, len(FILES), "wrong:", wrong, flush=True)


def main():
    global first_epoch
    if sys.argv[1] == "few":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        print(list(DataLoader(Numbers(64, [Add(1), Add(1)]), batch_size=4, collate_fn=list)))
        free = []
        try:
            while True:
                free.append(os.open(folder, os.O_RDONLY))
        except OSError:
            print("free:", len(free) > 20)
        for number in free:
            os.close(number)
        return
    loader = DataLoader(Numbers(64, [Add(1), Close(), Add(1)]), batch_size=4, collate_fn=list)
    for number, batch in enumerate(loader):
        print(number, batch, flush=True)
        if number == 4:
            look("within an operation")
            FILES.extend(opened(folder, f"b{n}") for n in range(700))
            look("between batches")
        if number == 5:
            look("all")
            FILES.clear()
    first_epoch = False
    FILES.extend(opened(folder, f"c{n}") for n in range(700))
    print(list(loader) == list(loader))
    look("next epochs")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main()
        os.closerange(3, 4096)
