"""The part of lotus that runs inside the traced program: observing hooks and their recorder.

Standard library only and self-contained: the launcher puts it into the program by path, under
the private name ``_lotus_inside``, also where lotus is not installed. Nothing here decides.
What only annotations need is under ``TYPE_CHECKING``, which each module sets itself: importing
``typing`` takes time.
"""
