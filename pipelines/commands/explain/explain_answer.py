"""The first three lines of `explain`.

Who is protected against whom, how much, and a person with ten samples.
"""

from __future__ import annotations

from typing import Any

CONTENTS = {
    "sample": ("The value of each single sample", "which of two equally likely values it has"),
    "person": (
        "All samples of one person within an agent",
        "which of two equally likely sets of values they have",
    ),
    "window": (
        "Everything that one user sends within a window",
        "which of two equally likely contents it has",
    ),
    "values": (
        "The values that one user sends within a window, but not their number",
        "which of two equally likely sets of values they have",
    ),
}
"""What is protected, and what an adversary would guess of it, by the unit of privacy."""

SURE = 0.9995
"""Share of right guesses from which on a percentage would be rounded to 100."""


def explain_answer(
    unit: str, adversary: str, total: str, odds: dict[str, Any], *, per_person: int | None = None
) -> dict[str, str]:
    """Answer three questions about a configuration in a sentence or two each.

    Examples
    --------
    >>> odds = {"guessed_right": 0.5471, "guessed_right_several": 0.8817}
    >>> for line in explain_answer("sample", "everyone else together", "(1, 1e-06)", odds).values():
    ...     print(line)
    The value of each single sample, against everyone else together, even if they know all other samples.
    (1, 1e-06): from all releases they guess which of two equally likely values it has at most 54.7 % of the time.
    If one person contributed ten samples: at most 88.2 % of the time.
    """
    what, guess = CONTENTS[unit]
    once, ten = (_how_often(odds[name]) for name in ("guessed_right", "guessed_right_several"))
    sources = (
        "all releases" if unit in ("sample", "person") else "all that is published of a window"
    )

    return {
        "protected": f"{what}, against {adversary}, even if they know all other samples.",
        "how_much": f"{total}: from {sources} they guess {guess} {once}.",
        "ten_samples": {
            "sample": f"If one person contributed ten samples: {ten}.",
            "person": f"In one agent the same (at most {per_person} count). If one person is in ten agents: {ten}.",
            "window": f"In one window the same. If one user is in ten windows: {ten}.",
            "values": f"In one window the same. If one user is in ten windows: {ten}.",
        }[unit],
    }


def explain_answer_lines(answer: dict[str, str]) -> list[str]:
    """Write the answers for reading."""
    return [
        f"protected       {answer['protected']}",
        f"how much        {answer['how_much']}",
        f"ten samples     {answer['ten_samples']}",
    ]


def _how_often(share: float) -> str:
    """How often a guess is right; never quite always."""
    if share >= SURE:
        return "nearly always"
    return f"at most {100 * share:.1f} % of the time"
