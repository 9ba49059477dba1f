"""Lotus inside other tools: notebooks, and the callbacks of training frameworks."""
