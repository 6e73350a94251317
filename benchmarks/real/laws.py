"""Made owners with Zipf sizes, whose means go with their number of values or do not.

The truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.real.measure import Half
from meanstream.operators.records import Floats, Ints

MOST, KNOWN = 3000, 10**9
_NODES = np.linspace(-5, 5, 401)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Means are `center + slope log10 n + spread z`, samples vary by `stddev` about them.

    Cut off at the bounds.

    `power` is that of the sizes, `far` how far the means of up to 10 values lie apart, and z is
    normal, of Student's t with 3 degrees, or one of two values.
    """

    power: float = 0.5
    center: float = 6.0
    slope: float = 0.0
    spread: float = 1.0
    far: float = 0.0
    kind: str = "normal"
    stddev: float = 4.0
    upper: float = 60.0

    def draw(self, seed: int, owners: int) -> Half:
        """Draw sizes, means and samples."""
        rng = np.random.default_rng([2511, seed])
        n = np.minimum((1 - rng.random(owners)) ** (-1 / self.power), MOST).astype(np.int64)
        z = rng.normal(size=owners)
        if self.kind == "tails":
            z = rng.standard_t(3, owners) / np.sqrt(3)
        elif self.kind == "two classes":
            z = np.sign(z)
        mean = (
            self.center
            + self.slope * np.log10(n)
            + np.where(n <= 10, self.far, 0.0)
            + self.spread * z
        )
        owner = np.repeat(np.arange(owners), n)
        owner = owner[rng.permutation(len(owner))]
        return (
            self._events(rng, mean, owner) if self.upper == 1 else self._amounts(rng, mean, owner)
        )

    def _events(self, rng: np.random.Generator, mean: Floats, owner: Ints) -> Half:
        mean = np.clip(mean, 0.002, 0.998)
        value = (rng.random(len(owner)) < mean[owner]).astype(np.float64)
        return _known(owner, value, mean, mean * (1 - mean))

    def _amounts(self, rng: np.random.Generator, mean: Floats, owner: Ints) -> Half:
        mean = np.clip(mean, 0.5, self.upper - 0.5)
        value = np.clip(mean[owner] + self.stddev * rng.normal(size=len(owner)), 0.0, self.upper)
        of_clipped = np.clip(mean[:, None] + self.stddev * _NODES, 0.0, self.upper) @ _WEIGHTS
        return _known(owner, value, of_clipped, np.full(len(mean), self.stddev**2))


def _known(owner: Ints, value: Floats, truth: Floats, variance: Floats) -> Half:
    n = len(truth)
    return Half(
        owner=owner, value=value, n_owners=n, truth=truth, truth_variance=np.zeros(n),
        truth_count=np.full(n, KNOWN), sample_variance=variance,
    )  # fmt: skip


LAWS: dict[str, Law] = {
    "made: small groups": Law(power=0.9),
    "made: small and alike": Law(power=0.9, spread=0.2),
    "made: with counts": Law(slope=0.7),
    "made: steeply with counts": Law(center=4.0, slope=2.0),
    "made: wide": Law(center=25.0, spread=6.0),
    "made: long tails": Law(kind="tails"),
    "made: two classes": Law(kind="two classes"),
    "made: small ones far": Law(far=3.0),
    "made: events": Law(center=0.1, spread=0.03, upper=1.0),
    "made: events with counts": Law(power=0.9, center=0.02, slope=0.05, spread=0.02, upper=1.0),
}
