"""What all reports share: the console, names, the HTML page."""
