"""Batches, samples and operations: what each took, and where the time of the loop went."""
