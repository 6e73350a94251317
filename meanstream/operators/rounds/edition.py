"""Editions of the estimators' designs: what a deployment was begun with, it keeps."""

from __future__ import annotations

from meanstream.operators.validation import require

NEWEST_EDITION = 2
"""Of most estimators. 1: as deployments were designed that say none. 2: a channel by epsilon where sizes are not known,
intervals that hold users whom no one has seen, no assumption on tails that is not declared, and a declared spread that
never costs."""


def check_edition(edition: int, newest: int = NEWEST_EDITION) -> int:
    """Refuse an edition that is not known.

    Examples
    --------
    >>> check_edition(3)
    Traceback (most recent call last):
    ValueError: edition must be 1 or 2, got 3
    """
    editions = range(1, newest + 1)
    require(edition in editions, "edition", f"be {' or '.join(map(str, editions))}", edition)
    return edition
