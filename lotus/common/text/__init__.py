"""Texts that people read: numbers and names in words, without secrets."""
