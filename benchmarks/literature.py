"""Private answers beside the public methods of the literature, on their task.

Brown's batting averages of 2005.

    python benchmarks/literature.py --brown brown_2005.csv
    python benchmarks/literature.py --brown brown_2005.csv --seeds 20 --first-seed 100

The file has a row per player: `player`, `pitcher` (0 or 1), `at_bats_first`, `hits_first`,
`at_bats_rest` and `hits_rest`. It is not part of the project; the data are those of Brown (2008),
"In-season prediction of batting averages", Annals of Applied Statistics 2.

Task: players with at least 11 at-bats in the first part; X = arcsin sqrt((H + 1/4) / (AB + 1/2)). A
method is judged on those with at least 11 in the rest, by its squared error there less 1 / (4 AB),
relative to the naive method, which takes X itself. Public methods read everybody's averages: three
are run again here, the others are quoted.

Ours protect the result of each single at-bat, at epsilon and delta 1e-6. A player's own average is
exact for that player, and everybody's number of at-bats is public. Covariates are whether a player
is a pitcher, and that with the number of at-bats of pitchers and of others. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.real.sets import RealSet
from benchmarks.real_data import noise_of, settings_of
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.defaults import SPREAD_SHARE
from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.streaming.agents.declared_covariates import covariates_of_table

LEAST = 11
"""At-bats of a player who takes part, in either half of the season."""
EPSILONS = "0.5,1,3"
PUBLISHED = {
    "empirical Bayes, maximum likelihood": 0.888,
    "grand mean": 0.853,
    "nonparametric maximum likelihood": 0.685,
    "James-Stein": 0.535,
    "SURE": 0.421,
    "group-linear": 0.302,
    "CLOSE": 0.300,
    "regression on pitcher x at-bats": 0.193,
}
"""Errors of public methods relative to the naive one, as the literature reports them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """Players with enough at-bats in the first part; `judged` are those with enough in the rest."""

    pitcher: Bools
    at_bats: Ints
    hits: Ints
    rest: Ints
    rest_hits: Ints

    @classmethod
    def read(cls, path: Path) -> Season:
        """Read the file."""
        table = csv.read_csv(path)
        some = table["at_bats_first"].to_numpy() >= LEAST
        pitcher, *counts = (
            table[name].to_numpy()[some]
            for name in ("pitcher", "at_bats_first", "hits_first", "at_bats_rest", "hits_rest")
        )

        return cls(
            pitcher=pitcher.astype(np.bool_),
            at_bats=counts[0],
            hits=counts[1],
            rest=counts[2],
            rest_hits=counts[3],
        )

    def error(self, theta: Floats) -> float:
        """Give the squared error of estimates of the transformed averages."""
        judged = self.rest >= LEAST
        away = (theta - _transformed(self.rest_hits, self.rest))[judged] ** 2 - 1 / (
            4 * self.rest[judged]
        )

        return float(away.sum())

    def stream(self, seed: int) -> RealSet:
        """Give a value per at-bat, 1 for a hit.

        Which at-bats were the hits is not on record and drawn.
        """
        player = np.repeat(np.arange(len(self.at_bats)), self.at_bats)
        rank = np.arange(len(player)) - np.repeat(
            np.cumsum(self.at_bats) - self.at_bats, self.at_bats
        )
        order = np.random.default_rng([2005, seed]).permutation(len(player))

        return RealSet(
            name="brown", owner=player[order], value=(rank < self.hits[player])[order].astype(np.float64),
            day=np.zeros(len(player), np.int64), lower=0.0, upper=1.0,
        )  # fmt: skip

    def covariates(self) -> dict[str, AgentCovariates | None]:
        """Give what is declared public.

        Nothing, who is a pitcher, and the at-bats of pitchers and others apart.
        """
        names = list(map(str, range(len(self.at_bats))))
        pitcher = pa.array(self.pitcher)
        log = np.log(self.at_bats)
        some = {"player": names, "pitcher": pitcher}
        apart = {
            "at-bats of pitchers": pa.array(log, mask=~self.pitcher),
            "at-bats of others": pa.array(log, mask=self.pitcher),
        }

        return {
            "none": None,
            "pitcher": covariates_of_table(pa.table(some), "player"),
            "pitcher x at-bats": covariates_of_table(pa.table(some | apart), "player"),
        }


def main() -> None:
    """Measure every epsilon with and without covariates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brown", type=Path, required=True, help="the table of players")
    parser.add_argument("--epsilons", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    season = Season.read(options.brown)

    report = {
        "players": len(season.at_bats),
        "judged": int((season.rest >= LEAST).sum()),
        "published": PUBLISHED,
        "public": public_methods(season),
        "private": list(private_answers(season, options)),
    }
    json.dump(report, sys.stdout, indent=1)
    print()


def public_methods(season: Season) -> dict[str, float]:
    """Re-run the simplest public methods: a check of task and data against what is published."""
    x = _transformed(season.hits, season.at_bats)
    variance = 1 / (4 * season.at_bats)
    naive = season.error(x)
    weight = 1 / variance
    center = float(weight @ x / weight.sum())
    shrunk = max(0.0, 1 - (len(x) - 3) / float(weight @ (x - center) ** 2))

    return {
        "naive": 1.0,
        "grand mean": season.error(np.full(len(x), x.mean())) / naive,
        "James-Stein": season.error(center + shrunk * (x - center)) / naive,
    }


def private_answers(season: Season, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Give our errors, on average over seeds of the noise."""
    naive = season.error(_transformed(season.hits, season.at_bats))
    declared = season.covariates()
    for epsilon in map(float, options.epsilons.split(",")):
        found: dict[str, list[float]] = {name: [] for name in ("alone", *declared)}
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for name, value in _answered(season, epsilon, seed, declared).items():
                found[name].append(
                    season.error(np.arcsin(np.sqrt(np.clip(value, 0.0, 1.0)))) / naive
                )

        for name, errors in found.items():
            yield {
                "epsilon": epsilon,
                "covariates": name,
                "error": float(np.mean(errors)),
                "standard_deviation_over_seeds": float(np.std(errors, ddof=1))
                if len(errors) > 1
                else None,
            }


def _answered(
    season: Season, epsilon: float, seed: int, declared: dict[str, AgentCovariates | None]
) -> dict[str, Floats]:
    """Have every player release as the engine does, and answer them."""
    data = season.stream(seed)
    settings = settings_of(data, epsilon, SPREAD_SHARE)
    agents = Agents(settings, noise_of(seed))
    followed = FollowedReleases(settings)
    agents.add_agents(list(map(str, range(len(season.at_bats)))))
    batch = agents.update(data.owner, data.value, np.arange(len(data.owner), dtype=np.float64))
    followed.observe(batch.releases, batch.before)
    batch = agents.release_now(float(len(data.owner)))
    followed.observe(batch.releases, batch.before)

    latest = followed.combined(agents.latest())
    pool = followed.posterior
    own = pooled_own_means(agents.own(), pool)
    found = {"alone": FittedAlone().estimate(own).value}

    for name, covariates in declared.items():
        design = None if covariates is None else covariates.design
        way = make_collaboration("learned_prior", lower=0.0, upper=1.0, covariates=design)
        codes = (
            np.zeros((len(own), 0), np.int64) if covariates is None else covariates.of(agents.names)
        )
        fitted = way.fit_summary(
            way.summarize(replace(latest, covariates=codes[latest.agent])), pool
        )
        found[name] = fitted.estimate(replace(own, covariates=codes[own.agent])).value

    return found


def _transformed(hits: Ints, at_bats: Ints) -> Floats:
    return np.asarray(np.arcsin(np.sqrt((hits + 0.25) / (at_bats + 0.5))), np.float64)


if __name__ == "__main__":
    main()
