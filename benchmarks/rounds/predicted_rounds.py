"""Windows that repeat with a public forecast of users' means: what it gains, and what it costs.

    python benchmarks/rounds/predicted_rounds.py --runs 20
    python benchmarks/rounds/predicted_rounds.py --real --runs 4

Squared error of `repeating` with a forecast over that without one, from the eleventh window on and
over all windows. Both have the same random bits, so that a forecast of which nothing is used changes
nothing. Users' means are normal with standard deviation .15 in half widths of the bounds, and a
forecast has the correlation that the row says. With `--real` a user is an aircraft, a window a week
of flights from New York in 2013, and the forecast comes from the flights that were scheduled, also
those that were cancelled: the mean of 0.12 minutes per mile plus 30.

Goals: a useless forecast costs at most 2 %, one of correlation .9 takes off half of the squared
error from the eleventh window on, and intervals of level .95 cover at least .93, each within two
standard errors. Exit code 1 if one is missed.

Below the table: what a forecast of correlation .9 could gain at best after so many narrow windows
if what a window misses were known by its measurements alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyarrow import csv

from meanstream.lab.demo.flights import flights_file
from meanstream.operators.estimators.carried.carried_design import (
    NARROW,
    NARROW_MOMENT,
    USUAL_SQUARE,
)
from meanstream.operators.estimators.carried.carried_state import REACH
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
from meanstream.operators.records import Bools, Floats
from meanstream.operators.rounds.channels.registry import best_channel
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries
from meanstream.operators.rounds.window_predictions import WindowPredictions
from meanstream.streaming.rounds.predicted_round import PredictedRound
from meanstream.streaming.rounds.rounds_settings import RoundsSettings, settings_round_noise
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window

SPREAD = 0.15
LATER = 10
MOST_COST = 1.02
MOST_LATER = 0.5
GOOD = 0.9
LEAST_COVERAGE = 0.93
DAY = 86_400_000_000
GRID = FixedPoint(-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class WindowUsers:
    """Users of one window: hashes, means on [-1, 1], and what is predicted of them."""

    words: np.ndarray
    mean: Floats
    prediction: Floats

    def summaries(self, which: Bools) -> Summaries:
        """Private: what some of the users know."""
        count = np.ones(int(which.sum()), np.int64)
        point = GRID.encode(self.mean[which])
        return Summaries(
            user=self.words[which], count=count, total=point, first=point, span=GRID.span
        )


class SameBits(WindowRound):
    """A round whose noise and stages do not depend on whether there is a forecast."""

    @cached_property
    def id(self) -> str:
        """Name of the round without one."""
        return f"same bits {self.window.start}"

    def stage_noise(self, secret: bytes, stage: int, public: Public) -> KeyedNoise:  # noqa: ARG002
        """Noise of the round without one."""
        alone = replace(self.settings, prediction=None)
        return settings_round_noise(secret, alone, self.id, design={"stage": stage})


class SameBitsPredicted(SameBits, PredictedRound):
    """The same with a forecast."""


def answered(
    settings: RoundsSettings, windows: list[WindowUsers], secret: bytes
) -> tuple[Floats, Bools, float]:
    """Answer windows one after the other: errors, what intervals cover, and the last slope."""
    carried: Public | None = None
    errors = []
    covered = []
    slope = 0.0

    for number, users in enumerate(windows):
        window = Window(number * DAY, (number + 1) * DAY)
        n = len(users.mean)
        this: WindowRound = SameBits(settings, window, n, carried)
        if settings.prediction is not None:
            of_users = WindowPredictions.of(users.words, users.prediction)
            this = SameBitsPredicted(settings, window, n, carried, predictions=of_users)
            slope = this.slope.slope

        estimate = _estimate(this, users, secret)
        carried = this.carried_after(estimate)
        truth = float(users.mean.mean())
        errors.append(float(estimate.value) - truth)
        covered.append(float(estimate.lower) <= truth <= float(estimate.upper))

    return np.array(errors), np.array(covered), slope


def _estimate(this: WindowRound, users: WindowUsers, secret: bytes) -> Estimate:
    public: Public = {}
    for stage in this.stages:
        asked = this.stage_of(users.words) == stage
        summaries = users.summaries(asked)
        reports = this.reports(secret, stage, public, summaries)
        tally, _ = this.tally(stage, public, reports, summaries.user)
        found = this.decode(stage, public, tally)
        if isinstance(found, Estimate):
            return found
        public = found

    raise AssertionError


def simulated(correlation: float, users: int, windows: int, seed: int) -> list[WindowUsers]:
    """Users who keep their means, with a forecast of this correlation."""
    rng = np.random.default_rng(seed)
    forecast = rng.normal(size=users)
    other = rng.normal(size=users)
    mean = SPREAD * (correlation * forecast + np.sqrt(1.0 - correlation**2) * other)
    words = keyed_owner_words([f"user {number}" for number in range(users)])
    of_window = WindowUsers(words, np.clip(mean, -1.0, 1.0), SPREAD * forecast)
    return [of_window] * windows


def flights(column: str, lower: float, upper: float) -> list[WindowUsers]:
    """Weeks of flights: aircraft, their means of a column, and a forecast from the schedule."""
    columns = ["time_hour", "tailnum", "distance", column]
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as file:
        options = csv.ConvertOptions(
            include_columns=columns, null_values=["NA"], strings_can_be_null=True
        )
        table = csv.read_csv(file, convert_options=options)

    table = table.filter(table["tailnum"].is_valid())
    names, code = np.unique(
        table["tailnum"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True
    )
    words = keyed_owner_words(names.tolist())
    day = table["time_hour"].to_numpy().astype("datetime64[D]").astype(np.int64)
    week = (day - day.min()) // 7
    place = 2.0 * (np.array([table[column].cast(pa.float64()).to_numpy()])[0] - lower)
    value = np.clip(place / (upper - lower) - 1.0, -1.0, 1.0)
    minutes = 30.0 + 0.12 * table["distance"].to_numpy()
    scheduled = 2.0 * (minutes - lower) / (upper - lower) - 1.0

    return [
        _week(words, code[week == number], value[week == number], scheduled[week == number])
        for number in range(int(week.max()))
    ]


def _week(words: np.ndarray, code: np.ndarray, value: Floats, scheduled: Floats) -> WindowUsers:
    flown = np.isfinite(value)
    n_flown = np.bincount(code[flown], minlength=len(words))
    n_scheduled = np.bincount(code, minlength=len(words))
    here = n_flown > 0
    mean = np.bincount(code[flown], value[flown], minlength=len(words))[here] / n_flown[here]
    total = np.bincount(code, scheduled, minlength=len(words))
    return WindowUsers(words[here], mean, total[here] / n_scheduled[here])


def ratio(squared: Floats, plain: Floats) -> tuple[float, float]:
    """Ratio of mean squared errors over runs, with its standard error."""
    means = squared.mean(axis=1)
    plain_means = plain.mean(axis=1)
    found = float(means.mean() / plain_means.mean())
    error = np.std(means - found * plain_means, ddof=1) / np.sqrt(len(means)) / plain_means.mean()
    return found, float(error)


def measured(
    worlds: list[list[WindowUsers]], epsilon: float, tails: str | None
) -> tuple[Floats, Floats, float, float, float]:
    """Squared errors with and without, coverage with and without, and the share that uses it."""
    alone = RoundsSettings(
        lower=-1.0, upper=1.0, epsilon=epsilon, window="1d", estimator="repeating", name="measured",
        tails=tails,
    )  # fmt: skip
    told = replace(alone, prediction="forecast")
    runs = []
    for number, windows in enumerate(worlds):
        secret = b"seed of a measured run: %08d" % number
        runs.append((*answered(told, windows, secret), *answered(alone, windows, secret)[:2]))

    squared, covered, slopes, plain, plainly_covered = (
        np.array(part) for part in zip(*runs, strict=True)
    )
    used = float(np.mean(slopes != 0.0))
    return squared**2, plain**2, float(covered.mean()), float(plainly_covered.mean()), used


def measured_alone(correlation: float, windows: int, epsilon: float) -> float:
    """Squared error times users in an ideal narrow window that only measures what it misses."""
    unit = REACH * SPREAD * math.sqrt(1.0 - correlation**2) / math.erf(REACH / math.sqrt(2.0))
    on_bounds = _noise(epsilon, USUAL_SQUARE, SPREAD**2) / (1.0 - NARROW)
    narrow = unit**2 * _noise(epsilon, NARROW_MOMENT, NARROW_MOMENT) / NARROW
    narrow += (on_bounds + narrow) / windows
    return on_bounds * narrow / (on_bounds + narrow)


def _noise(epsilon: float, made_for: float, square: float) -> float:
    c0, c1 = best_channel(epsilon, made_for).moments
    return c0 + (c1 - 1.0) * square


def rows(options: argparse.Namespace) -> Iterator[tuple[str, list[list[WindowUsers]], bool]]:
    """Names of what is measured, their worlds, and whether the forecast is useless."""
    if options.real:
        yield "air time by aircraft", [flights("air_time", 0.0, 700.0)] * options.runs, False
        yield "delay by aircraft", [flights("dep_delay", -30.0, 120.0)] * options.runs, False
        return

    for correlation in map(float, options.correlations.split(",")):
        worlds = [
            simulated(correlation, options.users, options.windows, options.seed + run)
            for run in range(options.runs)
        ]
        yield f"correlation {correlation:g}", worlds, not correlation


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--users", type=int, default=3000)
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--correlations", default="0,0.5,0.9")
    parser.add_argument("--tails", help="exponential: declared for both")
    parser.add_argument("--real", action="store_true", help="flights instead of made-up users")
    options = parser.parse_args()
    missed = []
    print("| forecast | all windows | from window 11 | coverage | without | slope used |")
    print("|---|---|---|---|---|---|")

    for name, worlds, useless in rows(options):
        squared, plain, covered, without, used = measured(worlds, options.epsilon, options.tails)
        whole, error = ratio(squared, plain)
        later, later_error = ratio(squared[:, LATER:], plain[:, LATER:])
        print(
            f"| {name} | {whole:.2f} ± {error:.2f} | {later:.2f} ± {later_error:.2f} | {covered:.3f} "
            f"| {without:.3f} | {used:.2f} |",
            flush=True,
        )
        least = LEAST_COVERAGE - 2.0 * np.sqrt(
            LEAST_COVERAGE * (1.0 - LEAST_COVERAGE) / squared.size
        )
        dear = useless and whole - 2.0 * error > MOST_COST
        good = name == f"correlation {GOOD:g}"
        if covered < least or dear or (good and later - 2.0 * later_error > MOST_LATER):
            missed.append(name)

    for number in (10, 24, 1000):
        best = measured_alone(GOOD, number, options.epsilon)
        print(
            f"\nAt best after {number} windows: {best / measured_alone(0.0, number, options.epsilon):.2f}",
            end="",
        )

    print(f"\n\nGoals missed: {', '.join(missed) or 'none'}.")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
