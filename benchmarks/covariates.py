"""What public covariates cost the engine.

Seconds of the processor per refresh of 1e6 agents with six attributes.

    python benchmarks/covariates.py
    python benchmarks/covariates.py --agents 100000

Four categories of 16 levels and two numbers. Prints JSON: `effects` are the tables of the releases,
400 or so models and the offsets, for which the goal is .35 s; `fit` and `answers` are all of a
refresh with covariates and without.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402 - after the number of threads
import pyarrow as pa  # noqa: E402

from meanstream.operators.collaboration.covariates.learned_effects import learn_effects  # noqa: E402
from meanstream.operators.collaboration.registry import make_collaboration  # noqa: E402
from meanstream.operators.records import OwnMeans, ReleaseColumns  # noqa: E402
from meanstream.streaming.agents.declared_covariates import covariates_of_columns  # noqa: E402

GOAL = 0.35
SAMPLE_VARIANCE = 0.04


def main() -> None:
    """Time a refresh with covariates and without."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    n = options.agents
    rng = np.random.default_rng(0)
    levels = pa.array([f"level {i}" for i in range(16)])

    given = [rng.integers(0, 16, n) for _ in range(4)]
    columns = {f"category {i}": levels.take(pa.array(codes)) for i, codes in enumerate(given)}
    columns |= {f"number {i}": pa.array(rng.normal(size=n)) for i in range(2)}
    covariates = covariates_of_columns(list(map(str, range(n))), columns)
    count = np.exp(rng.uniform(np.log(5), np.log(2000), n)).astype(np.int64)
    noise = (4 / count) ** 2
    one = np.ones(n, np.int64)
    truth = 0.5 + rng.normal(0, 0.05, 16)[given[0]] + rng.normal(0, 0.02, n)
    mean = truth + rng.normal(size=n) * np.sqrt(noise + SAMPLE_VARIANCE / count)

    releases = ReleaseColumns(
        agent=np.arange(n), index=one, count=count, total=one, mean=mean, noise_variance=noise
    )
    own_mean = truth + rng.normal(size=n) * np.sqrt(SAMPLE_VARIANCE / count)
    own = OwnMeans(
        agent=releases.agent, count=count, mean=own_mean, variance=SAMPLE_VARIANCE / count
    )
    codes = covariates.codes

    seconds = {
        "effects": taken(
            lambda: learn_effects(
                covariates.design, codes, count=count, mean=mean, variance=noise + SAMPLE_VARIANCE / count, lower=0.0,
                upper=1.0,
            ).offsets(codes, count),
            options.repeats,
        )
    }  # fmt: skip

    for name, design in (("with", covariates.design), ("without", None)):
        way = make_collaboration("learned_prior", lower=0.0, upper=1.0, covariates=design)
        known = releases
        mine = own
        if design is not None:
            known = replace(releases, covariates=codes)
            mine = replace(own, covariates=codes)

        fitted: list[Any] = []

        def fit(way: Any = way, known: ReleaseColumns = known, fitted: list[Any] = fitted) -> None:
            fitted.append(way.fit_summary(way.summarize(known), SAMPLE_VARIANCE))

        seconds[f"fit {name}"] = taken(fit, options.repeats)
        seconds[f"answers {name}"] = taken(
            lambda f=fitted, m=mine: f[-1].estimate(m), options.repeats
        )

    json.dump(
        {"agents": n, "goal_seconds_of_effects": GOAL, "seconds": seconds}, sys.stdout, indent=1
    )
    print()


def taken(work: Callable[[], Any], repeats: int) -> float:
    """Give the seconds of the processor, best of several."""
    best = np.inf
    for _ in range(repeats):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)

    return float(best)


if __name__ == "__main__":
    main()
