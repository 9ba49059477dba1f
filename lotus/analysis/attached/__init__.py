"""The verdict on a program that was sampled from outside."""
