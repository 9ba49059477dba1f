"""Feeds the program's training with data of one kind and another, and times it."""
