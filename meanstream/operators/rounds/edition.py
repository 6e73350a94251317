"""Editions of the estimators' designs: what a deployment was begun with, it keeps."""

from __future__ import annotations

from meanstream.operators.validation import require

EDITIONS = (1, 2)
"""1: as deployments were designed that say none. 2: a channel by epsilon where sizes are not known, intervals that hold
users whom nobody has seen, no assumption on tails that is not declared, and a declared spread that never costs."""

NEWEST_EDITION = EDITIONS[-1]


def check_edition(edition: int) -> int:
    """Refuse an edition that is not known.

    Examples
    --------
    >>> check_edition(3)
    Traceback (most recent call last):
    ValueError: edition must be 1 or 2, got 3
    """
    require(edition in EDITIONS, "edition", f"be {' or '.join(map(str, EDITIONS))}", edition)
    return edition
