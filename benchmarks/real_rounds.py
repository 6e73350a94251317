"""Real windows of rounds: what every estimator errs and covers, week by week and month by month.

    python benchmarks/real_rounds.py                              # everything; some minutes
    python benchmarks/real_rounds.py --sets "tail, delay" --epsilons 1 --runs 4
    python benchmarks/real_rounds.py --table docs/real-rounds.md

The sets of `real_data.py`: flights by week; records of baseball by month (which of a season's days
is drawn, seeded: it is not on record). A user is an owner with a value in the window. The truth is
the mean over the window's users of each one's own mean; windows follow one another as they were, a
run is one pass over all of them. What is declared is true: the largest standard deviation of users'
means in any window; exponential tails are declared whether or not they are there.

Goals: intervals of level .95 cover at least .93 of the windows, by every estimator that assumes
nothing of the users or what is true (two standard errors allowed); a declared spread costs at most
1.05 times the squared error of one report of each user (two standard errors allowed); from the
eleventh window on windows that repeat have at most half of it, where users' means spread by a tenth
of the range or less and users * epsilon**2 is 3,000 or more (likewise). Exit code 1 where one is
missed. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real.sets import SETS, RealSet, real_sets
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.central_rounds import run_central
from meanstream.operators.rounds.round_protocol import protocol_stages_of_positions, run_protocol
from meanstream.operators.rounds.round_records import Estimate, Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution

PERIODS = {"week": 7, "month": 30}
WINDOWS = {"tail, delay": "week", "flight, delay": "week", "tail, air time": "week"} | {
    name: "month" for name in SETS if name.startswith("baseball")
}
"""Sets with enough owners, and how their days are cut."""

ESTIMATORS = (
    "one_shot",
    "declared",
    "tails",
    "repeating",
    "repeating, tails",
    "central.mean",
    "cummings.ratio",
)
DECLARES = ("declared", "tails", "repeating, tails")
HONEST = ("one_shot", "declared", "repeating", "central.mean")
LEAST_COVERAGE = 0.93
DECLARED_COST = 1.05
REPEATING_GAIN = 0.5
LATER = 10
NARROW = 0.1
ENOUGH = 3000.0
SPAN = 2**20
HEAD = ("set", "users", "spread", "epsilon", "estimator", "squared error / one_shot", "from window 11", "coverage",
        "predicted / measured")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Window:
    """One window's users: numbers of samples, and means on [-1, 1]."""

    count: Ints
    mean: Floats

    @property
    def summaries(self) -> Summaries:
        """What users know."""
        total = np.rint(0.5 * (self.mean + 1.0) * SPAN * self.count).astype(np.int64)
        first = np.rint(0.5 * (self.mean + 1.0) * SPAN).astype(np.int64)
        ids = np.random.default_rng(1).integers(0, 2**64, (len(self.count), 2), dtype=np.uint64)
        return Summaries(user=ids, count=self.count, total=total, first=first, span=SPAN)


def main() -> None:
    """Measure every set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=";".join(WINDOWS), help="names, by semicolons")
    parser.add_argument("--epsilons", default="0.5,1,2")
    parser.add_argument("--runs", type=int, default=20, help="passes over all windows")
    parser.add_argument("--seed", type=int, default=7000)
    parser.add_argument("--table", type=Path, help="write the table into this file")
    options = parser.parse_args()

    rows = [
        row
        for one in real_sets(options.sets.split(";"))
        for row in _measured(
            one, [float(x) for x in options.epsilons.split(",")], options.runs, options.seed
        )
    ]
    missed = [text for row in rows for text in row["missed"]]
    print(json.dumps({"rows": rows, "missed": missed}, indent=1))

    if options.table is not None:
        _write(options.table, rows, missed, options.runs)
    sys.exit(1 if missed else 0)


def windows_of(one: RealSet) -> list[Window]:
    """Cut a set into windows; the last one may be short and is left out."""
    at = one.day // PERIODS[WINDOWS[one.name]]
    place = 2.0 * (one.value - one.lower) / (one.upper - one.lower) - 1.0
    made = []

    for number in range(int(at.min()), int(at.max())):
        here = at == number
        if not here.any():
            continue
        _, owner = np.unique(one.owner[here], return_inverse=True)
        count = np.bincount(owner)
        made.append(Window(count, np.bincount(owner, place[here]) / count))

    return made


def _measured(
    one: RealSet, epsilons: list[float], runs: int, seed: int
) -> Iterator[dict[str, Any]]:
    windows = windows_of(one)
    spread = max(float(np.std(window.mean)) for window in windows)
    for epsilon in epsilons:
        found = {}
        for name in ESTIMATORS:
            made = [_estimator(name, window, epsilon, spread) for window in windows]
            error, covered, predicted = _passes(windows, made, runs, seed)
            found[name] = error**2
            plain = found["one_shot"]
            users = float(np.median([len(window.count) for window in windows]))
            row = {
                "set": one.name, "windows": len(windows), "users": users, "spread": spread / 2.0, "epsilon": epsilon,
                "estimator": name, "ratio": _ratio(error**2, plain),
                "later": _ratio(error[:, LATER:] ** 2, plain[:, LATER:]),
                "coverage": float(covered.mean()), "predicted": predicted / float(np.sqrt(np.mean(error**2))),
            }  # fmt: skip

            yield row | {"missed": list(_missed(row, covered))}


def _passes(
    windows: list[Window], estimators: list[Any], runs: int, seed: int
) -> tuple[Floats, Floats, float]:
    """Errors and coverage by run and window, and the root of the mean predicted squared error."""
    errors = np.zeros((runs, len(windows)))
    covered = np.zeros((runs, len(windows)))
    predicted = []

    for run in range(runs):
        carried: Any = None
        for number, (window, made) in enumerate(zip(windows, estimators, strict=True)):
            rng = np.random.default_rng([seed, run, number])
            asked = made.carrying(carried) if made.carries else made
            found = _answer(asked, window.summaries, rng)
            carried = made.carried_after(found) if made.carries else None
            truth = float(window.mean.mean())
            errors[run, number] = float(found.unclipped) - truth
            covered[run, number] = float(found.lower) <= truth <= float(found.upper)
            predicted.append(float(asked.describe()["predicted_stderr"]) ** 2)

    return errors, covered, float(np.sqrt(np.mean(predicted)))


def _estimator(name: str, window: Window, epsilon: float, spread: float) -> Any:
    """Build it for so many users as the engine does, told the law of sizes and what is declared."""
    tails = {"tails": "exponential"}
    options: dict[str, Any] = {
        "declared": {"between_users": spread},
        "tails": tails,
        "repeating, tails": tails,
    }.get(name, {})

    built = (
        name.partition(",")[0]
        if name.startswith("repeating")
        else "plan"
        if name in DECLARES
        else name
    )
    users = int(float(f"{len(window.count):.1e}"))
    key = (built, epsilon, users, tuple(options.items()))

    if key not in _BUILT:
        sizes = SizeDistribution.from_counts(window.count)
        _BUILT[key] = build_estimator(built, epsilon=epsilon, users=users, sizes=sizes, **options)

    return _BUILT[key]


_BUILT: dict[Any, Any] = {}


def _answer(estimator: Any, users: Summaries, rng: np.random.Generator) -> Estimate:
    stage = protocol_stages_of_positions(estimator.shares, rng.random(len(users)))
    if estimator.trust == "central":
        return run_central(estimator, users, stage, [SeededWords(rng, 1) for _ in estimator.rounds])
    words = [
        SeededWords(rng, int(np.sum(stage == number))) for number in range(len(estimator.rounds))
    ]

    return run_protocol(estimator, users, stage, words)


def _ratio(squared: Floats, plain: Floats) -> list[float]:
    """Mean squared error relative to one report of each user, and its standard error over runs."""
    of = squared.mean(axis=1) / plain.mean()
    error = (
        np.hypot(of.std(ddof=1), of.mean() * plain.mean(axis=1).std(ddof=1) / plain.mean())
        / len(of) ** 0.5
    )

    return [float(of.mean()), float(error)]


def _missed(row: dict[str, Any], covered: Floats) -> Iterator[str]:
    where = f"{row['estimator']}, {row['set']}, epsilon {row['epsilon']:g}"
    error = float(covered.mean(axis=1).std(ddof=1)) / len(covered) ** 0.5
    if row["estimator"] in HONEST and row["coverage"] + 2.0 * error < LEAST_COVERAGE:
        yield f"{where}: covers {row['coverage']:.3f}"
    if row["estimator"] == "declared" and row["ratio"][0] - 2.0 * row["ratio"][1] > DECLARED_COST:
        yield f"{where}: {row['ratio'][0]:.2f} times the squared error of one report of each user"
    enough = row["spread"] <= NARROW and row["users"] * row["epsilon"] ** 2 >= ENOUGH

    if (
        row["estimator"] == "repeating"
        and enough
        and row["later"][0] - 2.0 * row["later"][1] > REPEATING_GAIN
    ):
        yield f"{where}: {row['later'][0]:.2f} times the squared error of one report of each user after ten windows"


def _write(path: Path, rows: list[dict[str, Any]], missed: list[str], runs: int) -> None:
    """Write the table below the text of a file that has one, or into a new one."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for row in rows:
        ratio, later = (f"{mean:.2f} ± {error:.2f}" for mean, error in (row["ratio"], row["later"]))
        lines.append(
            f"| {row['set']} | {row['users']:,.0f} | {row['spread']:.3f} | {row['epsilon']:g} | {row['estimator']} | "
            f"{ratio} | {later} | {row['coverage']:.3f} | {row['predicted']:.2f} |"
        )

    told = "; ".join(missed) or "none"
    text = path.read_text().partition("<!-- table -->")[0] if path.exists() else ""
    path.write_text(
        f"{text}<!-- table -->\n\n{runs} passes. Goals missed: {told}.\n\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
