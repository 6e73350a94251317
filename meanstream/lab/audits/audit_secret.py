"""The secret of an audit's own noise: about made-up samples alone, so that a seed may decide it."""

from __future__ import annotations

import secrets

THROWN_AWAY = 1
"""Apart from the coins of the same seed."""


def thrown_away_secret(seed: int | None) -> str:
    """Draw a secret for an audit.

    One that a seed repeats, so that what was found can be looked at again.

    **Privacy.** Anyone who knows the seed knows the noise. It is never that of a deployment, which `run` makes by
    itself.

    Examples
    --------
    >>> thrown_away_secret(1) == thrown_away_secret(1) != thrown_away_secret(2)
    True
    """
    import numpy as np

    if seed is None:
        return secrets.token_hex(32)
    return np.random.default_rng([seed, THROWN_AWAY]).bytes(32).hex()
