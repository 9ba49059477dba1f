"""What a program that is tuned offers: trials of its own loader, in its own process."""
