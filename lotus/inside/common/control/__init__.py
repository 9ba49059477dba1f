"""How lotus directs a program that is tuned or measured: messages, interrupts, the end."""
