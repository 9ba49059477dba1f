"""What a loop had of the machine: its cores, its memory, an accelerator."""
