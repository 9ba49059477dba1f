"""The sentences that sum a verdict up."""

_NARROW = 0.01  # an interval of less is not shown
_MUCH_AT_EDGES = 0.1  # of the loop: told in any case


def interval_words(low: float, high: float) -> str:
    """Return the interval in brackets; "" if it is not known or is lost in rounding."""
    if not high - low >= _NARROW:
        return ""
    return f" ({low:.0%} to {high:.0%})" if high >= 0.0995 else f" ({low:.1%} to {high:.1%})"


def summary(
    kind: str,
    inputs: float,
    edges: float,
    step: float,
    interval: str,
    left: tuple[float, float] | None,
    unclear: str,
) -> str:
    """Return the numbers behind a verdict, in a sentence or two.

    `left`: (waits, step) as shares of the time that other programs left the loop, of which the
    verdict is; None where they took little. `unclear`: why waits of more than 5 % are not
    said to hold up the loop.
    """
    if kind == "start-up-bound":
        return (
            f"{edges:.0%} of the loop passes before the first batch or after the last one, "
            f"{inputs:.0%} in other waits."
        )
    judged, taken = (inputs, step) if left is None else left
    exact = kind == "consumer-bound" or judged < 0.0995  # 5.3 %, not 5, is more than 5
    waits = f"{judged:.1%}" if exact else f"{judged:.0%}"
    if left is None or waits == f"{inputs:.0%}":
        text = f"The loop waits for data {waits}{interval} of its time"
    else:
        text = f"The loop waits for data {inputs:.0%}{interval} of its time; "
        text += f"without the time that other programs took, {waits}"
    if kind == "consumer-bound":
        also = "; the" if left is None else ", and the"
        text += f"{unclear}{also} training step takes {taken:.0%}"
    also = f" Start-up and shut-down take {edges:.0%}." if edges >= _MUCH_AT_EDGES else ""
    return f"{text}.{also}"


def summary_of_hidden(inputs: float, interval: str, own: float) -> str:
    """Return the sentence on waits that are hidden behind steps that other programs slowed down."""
    return (
        f"The loop waits for data {inputs:.0%}{interval} of its time; replayed without other "
        f"programs, {own:.0%}."
    )
