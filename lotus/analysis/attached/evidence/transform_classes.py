"""Names of transforms' classes that are not operations of their own."""

# They only call others.
CONTAINERS = frozenset(
    "Compose Sequential StandardTransform RandomApply RandomChoice RandomOrder OneOf SomeOf".split()
)
# Others are derived from them.
BASES = frozenset(
    "Transform _RandomApplyTransform BasicTransform ImageOnlyTransform DualTransform "
    "BaseWaveformTransform Module".split()
)
