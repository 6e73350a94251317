"""One budget for all windows of a user: noise and coverage, beside an equal part of epsilon for each.

    python benchmarks/rounds/one_budget.py

A curator (`central.mean`) and users who protect themselves (`one_shot`) answer one of 12 or 52
windows that share epsilon 1 and delta 1e-6. Measured is the variance of the error that is noise,
with its standard error, beside the same estimator at epsilon / W; and how often the 95 % interval of
the curator covers the mean of the population, where users are alike, are at either end, or few are
far out. Goal: the predicted ratio of variances within four standard errors, coverage of at least .95
less four. Exit code 1 where it is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import numpy as np

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator, build_estimator_of_budget
from meanstream.operators.noise.window_budget import WindowBudget
from meanstream.operators.records import Floats
from meanstream.operators.rounds.central_rounds import run_central
from meanstream.operators.rounds.round_protocol import run_protocol
from meanstream.operators.rounds.round_records import Summaries

SPAN = 2**20
ALLOWED = 4.0
"""Standard errors: a false alarm is below 1 in 10,000 for each figure."""

LEVEL = 0.95
LAWS = ("alike", "at the ends", "2 % far out")


def drawn(law: str, users: int, rng: np.random.Generator) -> tuple[Floats, float]:
    """Draw users' own means on [-1, 1]; with them the mean of their law."""
    if law == "alike":
        return np.full(users, 0.2), 0.2
    if law == "at the ends":
        return np.where(rng.random(users) < 0.6, 1.0, -1.0), 0.2
    return np.where(rng.random(users) < 0.02, -1.0, 0.8), 0.8 - 0.02 * 1.8


def summaries(means: Floats, rng: np.random.Generator) -> Summaries:
    """Users with one sample each."""
    total = np.rint(0.5 * (means + 1.0) * SPAN).astype(np.int64)
    ids = rng.integers(0, 2**64, (len(means), 2), dtype=np.uint64)
    return Summaries(user=ids, count=np.ones_like(total), total=total, first=total, span=SPAN)


def answers(
    estimator: Any, law: str, users: int, runs: int, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Errors from the users' own mean, and how often the interval covers that of the law."""
    errors = np.zeros(runs)
    covered = 0
    for run in range(runs):
        means, truth = drawn(law, users, rng)
        given = summaries(means, rng)

        if estimator.trust == "central":
            words = [SeededWords(rng, 1) for _ in estimator.rounds]
            answer = run_central(estimator, given, np.zeros(users, np.int64), words)
        else:
            answer = run_protocol(
                estimator, given, np.zeros(users, np.int64), [SeededWords(rng, users)]
            )

        errors[run] = float(answer.unclipped) - float(means.mean())
        covered += bool(answer.lower <= truth <= answer.upper)

    return errors, covered / runs


def ratio_of_variances(larger: Floats, smaller: Floats) -> tuple[float, float]:
    """Ratio of two variances around 0, and its standard error."""
    squares = [errors**2 for errors in (larger, smaller)]
    relative = [float(s.std() / s.mean()) / math.sqrt(len(s)) for s in squares]
    ratio = float(squares[0].mean() / squares[1].mean())
    return ratio, ratio * math.hypot(*relative)


def main() -> None:
    """Measure, print, and fail where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--local-runs", type=int, default=1500)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    missed = 0

    print("variance of the noise with an equal part of epsilon, over that with one budget")
    for windows in (12, 52):
        budget = WindowBudget(epsilon=options.epsilon, delta=options.delta, windows=windows)
        for name, users, runs in (
            ("central.mean", 100, options.runs),
            ("one_shot", 300, options.local_runs),
        ):
            apart = build_estimator(name, epsilon=budget.share, users=users)
            shared = build_estimator_of_budget(name, budget, users=users)
            ratio, error = ratio_of_variances(
                *(answers(one, "alike", users, runs, rng)[0] for one in (apart, shared))
            )

            predicted = budget.gain_over_shares(gaussian=name == "central.mean")
            ok = abs(math.log(ratio / predicted)) <= ALLOWED * error / ratio
            missed += not ok
            print(
                f"{windows:>3} windows  {name:<13} {ratio:5.2f} +- {error:.2f}  predicted {predicted:.2f}"
                f"{'' if ok else '  MISSED'}"
            )

    print("coverage of the curator's 95 % interval")
    error = math.sqrt(LEVEL * (1.0 - LEVEL) / options.runs)
    for windows in (12, 52):
        budget = WindowBudget(epsilon=options.epsilon, delta=options.delta, windows=windows)
        for users in (3, 30, 1000):
            shared = build_estimator_of_budget("central.mean", budget, users=users)
            for law in LAWS:
                coverage = answers(shared, law, users, options.runs, rng)[1]
                ok = coverage >= LEVEL - ALLOWED * error
                missed += not ok
                print(
                    f"{windows:>3} windows  {users:>5} users, {law:<12} {coverage:.3f} +- {error:.3f}"
                    f"{'' if ok else '  MISSED'}"
                )

    sys.exit(int(missed > 0))


if __name__ == "__main__":
    main()
