"""Draws of a joint posterior: a simulation of what is public."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from meanstream.operators.collaboration.joint.joint_means import JointMeans
from meanstream.operators.records import Floats

DRAWS = 2000
"""Draws of a joint posterior: a level of .95 is met within .005 (one standard error)."""
SEED = 1
_NUMBERS = 1 << 18
"""Numbers that are drawn at a time."""


def joint_errors(joint: JointMeans) -> Iterator[tuple[slice, Floats]]:
    """Draw errors of all means, some draws at a time, shape (draws, n), the same ones at every call.

    **Privacy.** They are no noise: everyone knows the seed. The posterior is public.

    Examples
    --------
    >>> one = JointMeans(value=np.zeros(1), stddev=np.ones(1), weight=np.zeros(1))
    >>> [errors.shape for _, errors in joint_errors(one)]
    [(2000, 1)]
    """
    generator = np.random.default_rng(SEED)
    n = len(joint)
    block = max(1, _NUMBERS // max(n, 1))
    center_stddev = math.sqrt(joint.center_variance)

    for start in range(0, DRAWS, block):
        draws = slice(start, min(start + block, DRAWS))
        own = generator.standard_normal((draws.stop - start, n))
        center = generator.standard_normal((draws.stop - start, 1))
        yield draws, joint.stddev * own + joint.weight * (center_stddev * center)
