"""A step that counts in Python, beside a thread that keeps a table of all losses in Python."""

import threading

import planted


def count_digits(batch):
    """Count the digits of some numbers of a batch, as a metric written by hand does."""
    counts = dict.fromkeys("0123456789.e-n", 0)
    for _ in range(12):
        for value in batch[:, 0, :4, :4].flatten().tolist():
            for digit in f"{value:.6f}":
                counts[digit] += 1


def keep_table(losses):
    while True:
        rows = [f"{number:6d} {loss:9.4f}" for number, loss in enumerate(losses)]
        "\n".join(rows)


if __name__ == "__main__":
    args = planted.arguments(samples=12000)
    if not args.without:
        losses = [float(number) for number in range(3000)]
        threading.Thread(target=keep_table, args=(losses,), daemon=True).start()
    planted.loop(
        planted.Pictures(planted.Compute(0.0001), args.samples),
        count_digits,
        num_workers=args.workers,
    )
