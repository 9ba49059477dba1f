"""The choice of a cache of samples: measured, planned, and compared in training."""
