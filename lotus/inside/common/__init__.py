"""What every part inside the program uses: the guard, patches, whose code a frame runs."""
