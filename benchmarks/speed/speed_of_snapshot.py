"""Seconds for one snapshot of many agents: fit the learned prior and answer everybody. Prints JSON.

    OMP_NUM_THREADS=1 python benchmarks/speed/speed_of_snapshot.py --agents 1000000

Times are process CPU times of all threads, the best of `--repeat`; a ratio divides by `np.sort` of
the same released means.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.records import Floats, Ints, OwnMeans, ReleaseColumns

STDDEV = 0.5
NOISE = 7.3
LOWER = -0.7
UPPER = 1.7


def main() -> None:
    """Measure the scenarios and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    n = options.agents

    same = np.full(n, 2000)
    mixed = np.ceil(10 * 1.25 ** rng.integers(0, 45, n)).astype(np.int64)
    classes = rng.choice([0.2, 0.4, 0.8], n)
    normal = rng.normal(0.5, 0.1, n)
    scenarios = {
        "classes, equal counts": (classes, same),
        "normal, equal counts": (normal, same),
        "classes, counts 10 to 2e5": (classes, mixed),
        "normal, counts 10 to 2e5": (normal, mixed),
    }

    report = {
        name: measure(rng, *scenario, repeat=options.repeat) for name, scenario in scenarios.items()
    }
    json.dump({"agents": n, "scenarios": report}, sys.stdout, indent=2)
    print()


def measure(
    rng: np.random.Generator, truth: Floats, count: Ints, *, repeat: int
) -> dict[str, float]:
    """Time the fit, the answers, the tests and the baseline on one population."""
    releases, own, variance = snapshot(rng, truth, count)
    seconds = {}
    error = {}

    for name in ("learned_prior", "tests"):
        collaboration = make_collaboration(name, lower=LOWER, upper=UPPER)
        seconds[f"{name}_fit"], fitted = best(
            repeat, partial(collaboration.fit, releases, variance)
        )
        seconds[f"{name}_answers"], answers = best(repeat, partial(fitted.estimate, own))

        if (
            name == "learned_prior"
        ):  # samples depend on each other: two variances, and so two values
            two = replace(own, value_variance=own.variance * rng.uniform(0.7, 1.0, len(own)))
            seconds["dependent_answers"], _ = best(
                repeat, partial(estimate_with_two_variances, fitted, two)
            )

        error[name] = float(
            np.mean((answers.value - truth) ** 2) / np.mean((own.mean - truth) ** 2)
        )

    seconds["np_sort"], _ = best(repeat, partial(np.sort, releases.mean))
    prior = seconds["learned_prior_fit"] + seconds["learned_prior_answers"]
    tests = seconds["tests_fit"] + seconds["tests_answers"]
    return {
        **{f"{name}_seconds": value for name, value in seconds.items()},
        "learned_prior_seconds": prior,
        "dependent_seconds": seconds["learned_prior_fit"] + seconds["dependent_answers"],
        "learned_prior_ratio": prior / seconds["np_sort"],
        "tests_ratio": tests / seconds["np_sort"],
        "learned_prior_error_to_local": error["learned_prior"],
        "tests_error_to_local": error["tests"],
    }


def snapshot(
    rng: np.random.Generator, truth: Floats, count: Ints
) -> tuple[ReleaseColumns, OwnMeans, Floats]:
    """One Gaussian release per agent, and everybody's own mean."""
    n = len(truth)
    index = np.arange(n)
    own_variance = STDDEV**2 / count
    noise_variance = (NOISE / count) ** 2
    mean = truth + rng.normal(0, 1, n) * np.sqrt(own_variance)
    released = mean + rng.normal(0, 1, n) * np.sqrt(noise_variance)

    releases = ReleaseColumns(
        agent=index,
        index=np.ones(n, int),
        count=count,
        total=index,
        mean=released,
        noise_variance=noise_variance,
    )
    own = OwnMeans(agent=index, count=count, mean=mean, variance=own_variance)

    return releases, own, own_variance + noise_variance


def best(repeat: int, call: Callable[[], Any]) -> tuple[float, Any]:
    """Shortest CPU time of several calls, and the last result."""
    times = []
    for _ in range(repeat):
        start = process_time()
        result = call()
        times.append(process_time() - start)

    return min(times), result


if __name__ == "__main__":
    main()
