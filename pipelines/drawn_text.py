"""Names of other people's making, as text of a picture."""

from __future__ import annotations

from meanstream.operators.validation import printable

LONGEST = 40
"""Letters of a name that a picture has room for."""


def drawn_text(name: str, longest: int = LONGEST) -> str:
    r"""Write a name so that Matplotlib draws it as it is, whatever is in it.

    Between two dollars Matplotlib reads a formula, and it leaves names that begin with `_` out of a
    legend.

    Examples
    --------
    >>> drawn_text("$\\frac$"), drawn_text("_a"), drawn_text("a" * 50, 5), drawn_text("a\tb")
    ('\\$\\frac\\$', ' _a', 'aaaa…', 'a\\tb')
    """
    text = printable(name[:longest])
    if max(len(name), len(text)) > longest:
        text = f"{text[: longest - 1]}…"

    text = text.replace("$", r"\$")

    return f" {text}" if text.startswith("_") else text
