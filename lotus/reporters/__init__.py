"""Reports of runs, sweeps and comparisons: for terminals, pages and programs. Computes nothing."""
