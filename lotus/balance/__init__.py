"""The numbers of samples of a global batch that the ranks should take: `lotus balance`."""
