"""The time of a loop and of the making of its batches, which the causes divide among them."""
