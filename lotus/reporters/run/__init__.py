"""Reports of one run: terminal, page, document, notebook."""
