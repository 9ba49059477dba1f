"""The report on a program observed from outside."""
