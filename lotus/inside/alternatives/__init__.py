"""Alternative implementations of operations: one file each; lotus shows its docstring and names.

The files are loaded in the user's program, and import nothing of lotus but functions of the file
_operations.py beside them. Each has

TITLE    what it does
CHANGE   the code that does it in the user's program
KNOWN    known properties that are not measured here

and one of two functions, which get the operations of a sample in order. An operation has a `name`;
a `transform`, the object or function that is called; `inputs`, copies of its inputs for some
samples, or none; and `run(value)`. Both raise ImportError if a library is missing.

stand_ins(operations) yields (first, count, steps): operations of which `count` from number `first`
on may be replaced by `steps`, functions of one value that are called in turn. `lotus run` can put
these into the program. EXACT says whether the results must be equal bit for bit; then `lotus run`
compares them now and then, and DRAWS names the generators ("python", "numpy", "torch") from which
the steps may draw: if a step fails, these get their states back before the original runs. A step
leaves its input unchanged. For an input that a step does not support, it calls the original.

offers(operations) yields changes that a program would have to make in other places:

    (names of the operations that it replaces, their function, the other function, inputs)

where both functions take an input. An input that is a list stands for as many samples as it has
items, any other for one.

It may have edits(operations), which returns the change of code in the format of
lotus/advise/alternatives/code_change.py, or none.
"""
