"""What a command writes to its terminal, and Ctrl-C there."""
