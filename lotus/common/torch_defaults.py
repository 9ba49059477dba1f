"""What torch's DataLoader takes where a program gives nothing."""

TORCH_PREFETCH = 2  # batches ahead of each worker
