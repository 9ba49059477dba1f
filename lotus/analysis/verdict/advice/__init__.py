"""Advice: its words, the change as data, and the circumstances on which it depends."""
