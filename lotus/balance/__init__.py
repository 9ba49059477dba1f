"""How many samples of a global batch each rank should take: `lotus balance`."""
