"""The processes of a running program: which they are, and what this user may read of them."""
