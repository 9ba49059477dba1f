"""What is shown of a run: a terminal report, documents for programs. Nothing is computed here."""
