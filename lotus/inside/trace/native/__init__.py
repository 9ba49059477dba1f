"""The hooks in C, which are optional, and what loads them."""
