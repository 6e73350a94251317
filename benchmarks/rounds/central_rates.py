"""The plain mean by a trusted curator beside PipelineDP's, on the same records, at the same epsilon.

    pip install pipeline-dp==0.3.1
    python benchmarks/rounds/central_rates.py

Users have 1 to 199 records each on [0, 1]; their own means spread by .1, and go with their number
of records or do not. PipelineDP is given every user's own mean as its one record (the same
estimand), or all records of at most `--most` per user (its usual way: a mean over records).
Measured is the root mean squared error from the mean over users of each one's own mean, over the
noise's draws. Goal: at most 1.05 times the error of PipelineDP on users' means, two standard errors
allowed. Exit code 1 where it is missed. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.rounds.central_rounds import run_central
from meanstream.operators.rounds.round_records import Summaries

SPAN = 2**20
GOAL = 1.05


def main() -> None:
    """Measure both laws of sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()

    rows = []
    missed = []
    for together in (False, True):
        rng = np.random.default_rng(options.seed)
        count = rng.integers(1, 200, options.users)
        mean = np.clip(
            0.5 + 0.1 * ((count - 100) / 57.7 if together else rng.normal(size=options.users)),
            0.0,
            1.0,
        )
        truth = float(mean.mean())
        own = [(user, float(value)) for user, value in enumerate(mean)]

        every = [
            (user, float(mean[user]))
            for user in range(options.users)
            for _ in range(min(count[user], options.most))
        ]
        errors = {
            "central.mean": _ours(count, mean, options) - truth,
            "PipelineDP, users' means": _theirs(own, 1, options) - truth,
            "PipelineDP, records": _theirs(every, options.most, options) - truth,
        }

        rmse = {name: float(np.sqrt(np.mean(error**2))) for name, error in errors.items()}
        rows.append(
            {
                "sizes go with means": together,
                "users": options.users,
                "epsilon": options.epsilon,
                "rmse": rmse,
            }
        )

        # The squares of Laplace errors have a standard deviation of sqrt(5) means.
        allowed = GOAL * (1.0 + 2.0 * (5.0 / (2.0 * options.runs)) ** 0.5)
        if rmse["central.mean"] > allowed * rmse["PipelineDP, users' means"]:
            missed.append(f"{rmse} where sizes go with means: {together}")

    print(json.dumps({"rows": rows, "missed": missed}, indent=1))
    sys.exit(1 if missed else 0)


def _ours(count: Any, mean: Any, options: argparse.Namespace) -> Any:
    made: Any = build_estimator("central.mean", epsilon=options.epsilon, users=options.users)
    first = np.rint(mean * SPAN).astype(np.int64)
    ids = np.zeros((len(count), 2), np.uint64)
    users = Summaries(user=ids, count=count, total=first * count, first=first, span=SPAN)
    cohort = np.zeros(len(count), np.int64)
    answers = [
        run_central(
            made, users, cohort, [SeededWords(np.random.default_rng([options.seed, run]), 1)]
        )
        for run in range(options.runs)
    ]

    return np.array([0.5 * (float(one.unclipped) + 1.0) for one in answers])


def _theirs(records: list[tuple[int, float]], most: int, options: argparse.Namespace) -> Any:
    """PipelineDP's mean of records (user, value) in one public partition."""
    import pipeline_dp  # noqa: PLC0415 - of the environment that compares

    parameters = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=most,
        min_value=0.0,
        max_value=1.0,
    )

    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda record: record[0],
        partition_extractor=lambda _: 0,
        value_extractor=lambda record: record[1],
    )
    found = []

    for _ in range(options.runs):
        budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=options.epsilon, total_delta=0.0)
        engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
        answer = engine.aggregate(records, parameters, extractors, public_partitions=[0])
        budget.compute_budgets()
        found.append(next(iter(answer))[1].mean)

    return np.array(found)


if __name__ == "__main__":
    main()
