"""Ways to make a program's training faster, tried in that program: `lotus advise`."""
