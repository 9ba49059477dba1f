"""Pauses the program and serves lotus's requests until it continues or is ended."""
