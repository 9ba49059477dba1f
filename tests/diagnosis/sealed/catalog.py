"""Learn to rank products of a mail-order catalogue. The catalogue is read once, into memory."""

import argparse
import sqlite3
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PRODUCTS = 500_000


def read_catalogue():
    """All products, as the shop's data base gives them."""
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE products (name TEXT, price REAL, stock INTEGER, shelf TEXT)")
    base.executemany(
        "INSERT INTO products VALUES (?, ?, ?, ?)",
        ((f"item {n}", n % 997 * 0.25, n % 41, f"aisle {n % 613}") for n in range(PRODUCTS)),
    )
    cursor = base.execute("SELECT name, price, stock, shelf FROM products")
    keys = [column[0] for column in cursor.description]
    products = [dict(zip(keys, row, strict=True)) for row in cursor]
    base.close()
    return products


class Products(Dataset):
    def __init__(self, products):
        self.products = products

    def __len__(self):
        return len(self.products)

    def __getitem__(self, index):
        product = self.products[index]
        return np.array([product["price"], product["stock"], len(product["name"])], np.float32)


class ProductTable(Dataset):
    def __init__(self, products):
        rows = [(p["price"], p["stock"], len(p["name"])) for p in products]
        self.table = np.array(rows, np.float32)

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return self.table[index]


def collate(rows):
    return torch.from_numpy(np.stack(rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=512)
    args = parser.parse_args()
    torch.manual_seed(0)

    products = read_catalogue()
    dataset = ProductTable(products) if args.without else Products(products)
    del products
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=collate,
        persistent_workers=True,
    )
    begin = time.perf_counter()
    for _ in range(2):
        for _rows in loader:
            time.sleep(0.004)  # stands for the accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
