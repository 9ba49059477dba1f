"""Which settings fit the machine: its limits, the costs of workers and batches, the guard."""
