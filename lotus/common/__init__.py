"""What every package may use: errors, files, formatting, statistics, facts of the host."""
