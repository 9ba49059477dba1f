"""Verdicts on a program that was watched from outside, and all that is shown with them."""
