"""Other ways to do the same: a file each, whose docstring and names say all that is shown.

The files are loaded in the user's program, from their path, and import nothing of lotus. Each has

TITLE    what it does
CHANGE   the code that does it in the user's program
KNOWN    what is known of it, which nobody has measured here

and one of two functions, which get the operations that a sample meets, in this order. An operation
has a `name`; a `transform`, the object or the function that is called; `inputs`, copies of what it
got for some samples, or none; and `run(value)`. Both raise ImportError if a library is missing.

stand_ins(operations) yields (first, count, steps): operations of which `count` from number `first`
on may be replaced by `steps`, functions of one value that are called in turn. `lotus run` can put
these into the program. EXACT says whether the results are to be equal bit for bit; then `lotus run`
compares them now and then. A step that gets what it does not know does what was there before.

offers(operations) yields what a program would have to do in another place:

    (names of the operations that it replaces, their function, the other function, inputs)

where both functions take an input. Which samples an input has is the length of an input that is a
list, else one.

It may have edits(operations), which returns the change of code as lotus/advise/code_change.py has
it, or none.
"""
