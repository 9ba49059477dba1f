"""The machine during a loop: its cores, its memory, an accelerator."""
