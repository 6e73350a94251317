"""Normal numbers that anyone can draw again, for simulations of what is public."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Floats


def seeded_normals(draw: int, n: int) -> tuple[Floats, float]:
    """Give n normal numbers, and one more, that depend on the number of the draw alone.

    **Privacy.** They are no noise: everyone knows the seed. Only public posteriors are simulated.

    Examples
    --------
    >>> own, shared = seeded_normals(0, 3)
    >>> len(own), seeded_normals(0, 3)[1] == shared
    (3, True)
    """
    generator = np.random.default_rng(draw)
    shared = float(generator.standard_normal())
    return generator.standard_normal(n), shared
