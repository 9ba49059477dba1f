"""Times of batches, and the parts of a loop's time."""
