"""Closes descriptors that are not its own and uses their numbers for its own files.

Prints what it got, the numbers of its files and what is in them: nobody else may write there.
"""

import os
import shutil
import tempfile

from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self):
        self.transform = str

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.transform(index)


class Files:
    """So many files of our own, each with its number in it."""

    def __init__(self, count):
        self.folder = tempfile.TemporaryDirectory()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self.numbers = [
            os.open(os.path.join(self.folder.name, str(place)), flags) for place in range(count)
        ]
        for number in self.numbers:
            os.write(number, b"%d" % number)

    def look(self, what):
        wrong = [n for n in self.numbers if os.pread(n, 4096, 0) != b"%d" % n]
        print(what, self.numbers[0], self.numbers[-1], "wrong:", wrong, flush=True)


def main():
    loader = DataLoader(Numbers(), batch_size=4, collate_fn=list)
    beside = Files(3)
    files = None
    for number, batch in enumerate(loader):
        print(number, batch, flush=True)
        if number == 4:
            os.closerange(3, 4096)
            files = Files(700)  # more than any tracer would hide behind
        if number == 8:
            files.look("after closing all")
            os.closerange(3, 4096)
    print(beside.numbers)

    files = Files(2)
    print(list(loader) == list(loader))
    files.look("next epoch")
    # What should go to stderr now goes to a file of ours.
    os.close(2)
    log = os.open(os.path.join(files.folder.name, "log"), os.O_RDWR | os.O_CREAT)
    assert log == 2
    if "LOTUS_RUN" in os.environ:
        shutil.rmtree(os.environ["LOTUS_RUN"])
    print(list(loader) == list(loader))
    print("log:", os.pread(2, 4096, 0))


if __name__ == "__main__":
    main()
