"""The speed of a program without each of its stalls, from blocks of its own steps."""
