"""What strangers who publish false means and counts do to the answers of the honest. Prints JSON.

    python benchmarks/liars.py --seeds 10 --first-seed 500

600 agents of 5 to 1,000 samples release once (epsilon 1, delta 1e-6; standard deviation of a sample
.25 of the bounds): means that are normal, three exact classes, or means that go with counts. One in
a hundred or one in ten of them lies: about its mean, which is then far, at the edge, or just beside
the crowd, or each liar's another; and about its count, which is 10 million, or its own. What is
answered are the honest: squared error relative to that of learning alone, the same without liars,
and the share of intervals of level .95 that cover.

Goals: at most 1.05 times the error alone with 1 % liars, 1.5 times with 10 % (of that without liars
where that is more); coverage of at least .90; two standard errors over the seeds allowed. Exit code
1 where one is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from meanstream.operators.records import Floats, OwnMeans, ReleaseColumns

AGENTS = 600
STDDEV = 0.25
EPSILON = 1.0
DELTA = 1e-6
CLAIMED = 10**7
SHARES = {0.01: 1.05, 0.1: 1.5}
"""Of liars, and the most that they may make the error of the others, relative to learning alone."""
LEAST_COVERAGE = 0.9

Drawn = Callable[[np.random.Generator, Floats], Floats]
POPULATIONS: dict[str, Drawn] = {
    "normal": lambda rng, count: rng.normal(0.5, 0.05, len(count)),
    "three classes": lambda rng, count: rng.choice([0.3, 0.5, 0.7], len(count)),
    "with counts": lambda rng, count: (
        0.15 + 0.1 * np.log10(count) + rng.normal(0, 0.02, len(count))
    ),
}
MEANS = {
    "far": (0.9, 0.9),
    "at the edge": (0.0, 0.0),
    "beside": (0.55, 0.55),
    "each another": (0.0, 1.0),
}
"""Between which bounds each liar's mean is drawn."""


def main() -> None:
    """Measure every lie in every population."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--collaboration", default="learned_prior")
    options = parser.parse_args()
    rows = [
        *measure(
            range(options.first_seed, options.first_seed + options.seeds), options.collaboration
        )
    ]

    json.dump(
        {"seeds": options.seeds, "first_seed": options.first_seed, "rows": rows},
        sys.stdout,
        indent=1,
    )
    print()
    sys.exit(any(row["missed"] for row in rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Agents, what they know and release, and who of them lies, in order."""

    truth: Floats
    own: OwnMeans
    releases: ReleaseColumns
    seed: int

    @classmethod
    def draw(cls, population: str, seed: int) -> Self:
        """Draw means, samples and noise."""
        rng = np.random.default_rng([seed, list(POPULATIONS).index(population)])
        count = np.exp(rng.uniform(np.log(5), np.log(1000), AGENTS)).astype(np.int64)
        truth = POPULATIONS[population](rng, count.astype(np.float64))
        variance = STDDEV**2 / count
        mean = truth + rng.normal(0, np.sqrt(variance))
        noise = (calibrated_analytic_stddev(EPSILON, DELTA) / count) ** 2
        agent = np.arange(AGENTS)
        ones = np.ones(AGENTS, np.int64)
        releases = ReleaseColumns(
            agent=agent, index=ones, count=count, total=ones, mean=mean + rng.normal(0, np.sqrt(noise)),
            noise_variance=noise,
        )  # fmt: skip

        return cls(truth=truth, own=OwnMeans(agent=agent, count=count, mean=mean, variance=variance),
                   releases=releases, seed=seed)  # fmt: skip

    def lied(self, share: float, mean: str, *, claimed: bool) -> ReleaseColumns:
        """Let the first agents publish another mean, of their own count or of ten million samples."""
        some = np.arange(AGENTS) < share * AGENTS
        count = np.where(some & claimed, CLAIMED, self.releases.count)
        lie = np.random.default_rng([self.seed, 1]).uniform(*MEANS[mean], AGENTS)
        return replace(
            self.releases,
            count=count,
            mean=np.where(some, lie, self.releases.mean),
            noise_variance=(calibrated_analytic_stddev(EPSILON, DELTA) / count) ** 2,
        )

    def judged(
        self, collaboration: str, releases: ReleaseColumns, share: float
    ) -> tuple[float, float]:
        """Give the squared error of the honest relative to learning alone, and how many of their intervals cover."""
        learned = make_collaboration(collaboration, lower=0.0, upper=1.0)
        answer = learned.fit_summary(learned.summarize(releases), STDDEV**2).estimate(self.own)
        honest = np.arange(AGENTS) >= share * AGENTS
        squared = (answer.value - self.truth)[honest] ** 2
        covered = (answer.lower <= self.truth) & (self.truth <= answer.upper)

        return float(squared.sum() / self.own.variance[honest].sum()), float(covered[honest].mean())


def measure(seeds: range, collaboration: str) -> Iterator[dict[str, Any]]:
    """Give one row for each population, share of liars and lie."""
    for population in POPULATIONS:
        worlds = [World.draw(population, seed) for seed in seeds]
        for share, most in SHARES.items():
            without = np.array([w.judged(collaboration, w.releases, share)[0] for w in worlds])
            for mean in MEANS:
                for claimed in (True, False):
                    found = np.array(
                        [
                            w.judged(collaboration, w.lied(share, mean, claimed=claimed), share)
                            for w in worlds
                        ]
                    )
                    ratio, covered = found.mean(axis=0)
                    error, chance = 2 * found.std(axis=0, ddof=1) / np.sqrt(len(seeds))
                    limit = most * max(1.0, float(without.mean()))

                    missed = {
                        "alone": ratio - error > limit,
                        "coverage": covered + chance < LEAST_COVERAGE,
                    }
                    yield {
                        "population": population, "liars": share, "mean": mean,
                        "count": CLAIMED if claimed else "its own", "without": round(float(without.mean()), 3),
                        "ratio": round(float(ratio), 3), "stderr": round(float(error) / 2, 3),
                        "coverage": round(float(covered), 3), "missed": [goal for goal, m in missed.items() if m],
                    }  # fmt: skip


if __name__ == "__main__":
    main()
