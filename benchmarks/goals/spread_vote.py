"""What share of the budget the votes on the spread are worth.

Error and coverage by law of the samples and by share.

Agents with 10 to some 100 samples each release on the default schedule. The table shows, for each
law and share, the geometric mean over the seeds of the squared error of the answers relative to
learning alone, the coverage of the 95 % intervals of answers and of the own means, and the fitted
standard deviation of one sample over the true one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints

Draw = Callable[[np.random.Generator, Ints, int], tuple[Floats, Floats]]
LAST = 1e9


def normal(stddev: float) -> Draw:
    """Draw normal samples about normal means."""

    def draw(rng: np.random.Generator, agent: Ints, agents: int) -> tuple[Floats, Floats]:
        mean = rng.normal(0.5, 0.1, agents)
        return np.clip(mean[agent] + rng.normal(0, stddev, len(agent)), 0, 1), mean

    return draw


def heavy(rng: np.random.Generator, agent: Ints, agents: int) -> tuple[Floats, Floats]:
    """Student's t with 3 degrees of freedom, scale .05."""
    mean = rng.normal(0.5, 0.1, agents)
    return np.clip(mean[agent] + 0.05 * rng.standard_t(3, len(agent)), 0, 1), mean


def unlike(rng: np.random.Generator, agent: Ints, agents: int) -> tuple[Floats, Floats]:
    """Agents of very different spread."""
    mean = rng.normal(0.5, 0.1, agents)
    spread = 0.05 * np.exp(rng.normal(0, 0.7, agents))
    return np.clip(mean[agent] + spread[agent] * rng.normal(0, 1, len(agent)), 0, 1), mean


def yes_no(a: float, b: float) -> Draw:
    """Draw yes/no data whose rates are beta distributed."""

    def draw(rng: np.random.Generator, agent: Ints, agents: int) -> tuple[Floats, Floats]:
        rate = rng.beta(a, b, agents)
        return (rng.random(len(agent)) < rate[agent]).astype(float), rate

    return draw


def counts(rng: np.random.Generator, agent: Ints, agents: int) -> tuple[Floats, Floats]:
    """Poisson counts in 0..10, as parts of 10."""
    mean = rng.gamma(9, 1 / 30, agents)
    return np.clip(rng.poisson(mean[agent]), 0, 10) / 10, mean / 10


LAWS: dict[str, Draw] = {
    "normal .02": normal(0.02),
    "normal .1": normal(0.1),
    "normal .001": normal(0.001),
    "Student t3": heavy,
    "unlike agents": unlike,
    "rates about .05": yes_no(2, 38),
    "rates about .3": yes_no(12, 28),
    "counts": counts,
}


def measure(draw: Draw, share: float, epsilon: float, agents: int, seed: int) -> tuple[float, ...]:
    """Error relative to alone, coverage together and alone, fitted over true standard deviation."""
    rng = np.random.default_rng((seed, 1))
    number = rng.geometric(1 / 25, agents) + 9
    agent = rng.permutation(np.repeat(np.arange(agents), number))
    value, truth = draw(rng, agent, agents)
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=epsilon, delta=1e-6, spread_share=share, name="benchmark"
    )
    everybody = Agents(
        settings, KeyedNoise(rng.bytes(32), deployment="benchmark", purpose="agents")
    )

    everybody.add_agents([str(i) for i in range(agents)])
    pool = FollowedReleases(settings)
    for batch in (
        everybody.update(agent, value, np.arange(len(agent), dtype=float)),
        everybody.release_now(LAST),
    ):
        pool.observe(batch.releases, batch.before)

    known = pool.posterior
    own = everybody.own()
    means = pooled_own_means(own, known)
    collaboration = make_collaboration("learned_prior", lower=0, upper=1)
    summary = collaboration.summarize(pool.combined(everybody.latest()))
    together = estimate_with_two_variances(collaboration.fit_summary(summary, known), means)
    alone = FittedAlone().estimate(means)
    error = [float(np.mean((answer.value - truth) ** 2)) for answer in (together, alone)]
    covered = [float(np.mean((a.lower <= truth) & (truth <= a.upper))) for a in (together, alone)]

    own_stddev = float(np.sqrt(own.squared_deviations.sum() / (own.count - 1).sum()))
    return error[0] / error[1], *covered, known.median**0.5 / own_stddev


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.05, 0.1, 0.2, 0.3])
    given = parser.parse_args()

    columns = [f"{share:g}: error/alone, coverage, alone, sd" for share in given.share]
    print("law", "epsilon", *columns, sep=" | ")
    logs = np.zeros(len(given.share))

    for name, draw in LAWS.items():
        for epsilon in given.epsilon:
            cells = []
            for k, share in enumerate(given.share):
                seeds = range(given.first_seed, given.first_seed + given.seeds)
                found = np.array(
                    [measure(draw, share, epsilon, given.agents, seed) for seed in seeds]
                )
                ratio = float(np.exp(np.log(found[:, 0]).mean()))
                logs[k] += np.log(ratio)
                cells.append(
                    f"{ratio:.2f} {found[:, 1].mean():.2f} {found[:, 2].mean():.2f} {found[:, 3].mean():.2f}"
                )

            print(name, f"{epsilon:g}", *cells, sep=" | ", flush=True)

    print(
        "geometric mean",
        "",
        *(f"{x:.3f}" for x in np.exp(logs / len(LAWS) / len(given.epsilon))),
        sep=" | ",
    )


if __name__ == "__main__":
    main()
