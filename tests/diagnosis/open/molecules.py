"""Train on batches of molecules, each a graph of atoms and bonds."""

import argparse
import dataclasses
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Atom:
    element: int
    charge: float
    position: tuple


@dataclasses.dataclass
class Molecule:
    name: str
    atoms: list
    bonds: list


def draw(rng, number, size=60):
    atoms = [
        Atom(rng.randint(1, 20), rng.random(), (rng.random(), rng.random(), rng.random()))
        for _ in range(size)
    ]
    bonds = [(rng.randrange(size), rng.randrange(size)) for _ in range(2 * size)]
    return Molecule(f"m{number}", atoms, bonds)


class Molecules(Dataset):
    def __init__(self, count, packed):
        rng = random.Random(0)
        distinct = [draw(rng, number) for number in range(512)]
        if packed:
            distinct = [pack(molecule) for molecule in distinct]
        self.items = distinct
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.items[index % len(self.items)]


def pack(molecule):
    atoms = [[a.element, a.charge, *a.position] for a in molecule.atoms]
    return torch.tensor(atoms), torch.tensor(molecule.bonds)


def as_list(samples):
    return samples


def concatenate(samples):
    return torch.cat([atoms for atoms, _ in samples]), torch.stack([bonds for _, bonds in samples])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    loader = DataLoader(
        Molecules(9600, packed=args.without),
        batch_size=128,
        num_workers=args.workers,
        collate_fn=concatenate if args.without else as_list,
    )
    begin = time.perf_counter()
    for _batch in loader:
        time.sleep(0.005)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
