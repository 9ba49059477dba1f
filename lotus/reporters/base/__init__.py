"""Shared by all reports: the console, names, the HTML page."""
