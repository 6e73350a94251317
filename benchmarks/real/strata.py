"""Squared error, width and coverage by the number of rows, for every collaboration of the registry.

The engine's agents are answered with their own means, the groups of a frame with their releases. In
a thinned set few values of each owner are the stream, and the rest is the truth: small groups are
judged by a truth that is known well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.real.laws import LAWS
from benchmarks.real.measure import Half, replayed
from benchmarks.real.sets import RealSet, real_sets
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import AT_THE_END
from meanstream.operators.collaboration.registry import answers_from_releases, make_collaboration
from meanstream.operators.collaboration.two_variances import estimate_with_two_variances
from meanstream.operators.collaboration.variance.pooled_variance import (
    pooled_own_means,
    pooled_variance,
)
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import AgentEstimates, Bools, Floats, Ints

STRATA = ((1, 4), (5, 10), (11, 30), (31, 100), (101, 10**9))
DEFAULT, PLAIN = "learned_prior", ("pooled_prior", "james_stein")
LEAST, LEAST_TRUTH = 40, 5
"""A stratum has at least so many owners, and each of them so many values in the truth."""
ERROR_GOAL, WIDTH_GOAL, COVERS, COVER_GOAL = 1.2, 1.5, 0.92, (0.93, 0.985)
BOUND_EXTRA = 2.0
"""An answer at a bound is one's own where the own mean is within so many of its standard errors of
it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What every method answers those who are judged.

    `own` and `own_variance` are what the answer was made of.
    """

    owner: Ints
    count: Ints
    own: Floats
    own_variance: Floats
    answers: dict[str, AgentEstimates]


def answered(
    half: Half, settings: AgentsSettings, noise: KeyedNoise, host: str, methods: Sequence[str]
) -> Answered:
    """Have everybody release along one half, and answer by each method."""
    if host == "frames":
        settings = replace(settings, horizon=1, schedule=AT_THE_END)
    (known,) = replayed(half, settings, noise, [1.0])
    own, variance = (
        pooled_own_means(known.own, known.pool),
        pooled_variance(known.latest, known.pool.median),
    )
    answers = {}
    for method in methods:
        collaboration = make_collaboration(
            method, lower=settings.lower, upper=settings.upper, strangers=False
        )
        fitted = collaboration.fit_summary(collaboration.summarize(known.latest), known.pool)
        frames = host == "frames"
        answers[method] = (
            answers_from_releases(fitted, known.latest, variance)
            if frames
            else estimate_with_two_variances(fitted, own)
        )
    if host == "frames":
        latest = known.latest
        return Answered(
            owner=latest.agent,
            count=latest.count,
            own=latest.mean,
            own_variance=variance,
            answers=answers,
        )
    return Answered(
        owner=own.agent, count=own.count, own=own.mean, own_variance=own.variance, answers=answers
    )


@dataclass(slots=True)
class Sums:
    """Of one method in one stratum, over halves and seeds.

    Squared errors less those of the truth, widths, misses.
    """

    errors: list[Floats]
    widths: list[Floats]
    covered: list[Bools]

    def row(self) -> dict[str, float]:
        """Sum up; the standard errors are over owners, of all seeds together."""
        error, covered = np.concatenate(self.errors), np.concatenate(self.covered)
        each = len(self.errors)
        return {
            "error": float(error.mean()),
            "stderr": float(np.mean([one.std() / np.sqrt(len(one)) for one in self.errors])),
            "width": float(np.median(np.concatenate(self.widths))),
            "cover": float(covered.mean()),
            "cover_stderr": float(np.sqrt(0.05 * 0.95 / (len(covered) / each))),
        }


def judge(
    parts: Sequence[tuple[Half, Answered]], lower: float, upper: float, least: int = LEAST
) -> Iterator[dict[str, Any]]:
    """Give a row for each stratum.

    Errors, widths and coverage of all methods, and the goals that are missed.
    """
    for low, high in STRATA:
        sums: dict[str, Sums] = {}
        at_bound = owners = 0
        for half, found in parts:
            who = np.flatnonzero(
                (found.count >= low)
                & (found.count <= high)
                & (half.truth_count[found.owner] >= LEAST_TRUTH)
            )
            if len(who) < least:
                continue
            owners += len(who)
            owner = found.owner[who]
            noise = half.sample_variance[owner] / half.truth_count[owner]
            for method, answer in found.answers.items():
                value = np.clip(answer.value[who], lower, upper)
                ends = np.clip([answer.lower[who], answer.upper[who]], lower, upper)
                middle, width = ends.mean(axis=0), np.diff(ends, axis=0)[0]
                truth = half.truth[owner]
                one = sums.setdefault(method, Sums([], [], []))
                one.errors.append((value - truth) ** 2 - noise)
                one.widths.append(width)
                one.covered.append(
                    np.abs(truth - middle) <= np.sqrt(width**2 / 4 + 1.96**2 * noise) + 1e-12
                )
                if method == DEFAULT:
                    stray = BOUND_EXTRA * np.sqrt(found.own_variance[who])
                    own_says = (found.own[who] - stray <= lower) | (found.own[who] + stray >= upper)
                    at_bound += int((((value <= lower) | (value >= upper)) & ~own_says).sum())
        if sums:
            rows = {method: one.row() for method, one in sums.items()}
            more = {
                "stratum": f"{low} to {high}" if high < 10**9 else f"from {low}",
                "owners": owners // len(parts),
                "at_bound": at_bound,
            }
            yield more | compared(sums, rows, at_bound) | {"methods": rows}


def compared(
    sums: dict[str, Sums], rows: dict[str, dict[str, float]], at_bound: int
) -> dict[str, Any]:
    """Compare the default with the best of the registry.

    Name the goals missed by more than two standard errors.
    """
    best = min(PLAIN, key=lambda method: rows[method]["error"])
    ours, theirs = np.concatenate(sums[DEFAULT].errors), np.concatenate(sums[best].errors)
    each = np.sqrt(len(theirs) / len(sums[best].errors))
    measured = theirs.mean() > 2 * theirs.std() / each
    ratio = ours.mean() / theirs.mean() if measured else np.nan
    stderr = float((ours - ratio * theirs).std() / each / theirs.mean()) if measured else np.nan
    covering = [
        row["width"] for method, row in rows.items() if method != DEFAULT and row["cover"] >= COVERS
    ]
    width = rows[DEFAULT]["width"] / min(covering) if covering else float("nan")
    cover, allowed = rows[DEFAULT]["cover"], 2 * rows[DEFAULT]["cover_stderr"]
    missed = ["error"] if ratio > ERROR_GOAL + 2 * stderr else []
    missed += ["width"] if width > WIDTH_GOAL else []
    missed += ["cover"] if not COVER_GOAL[0] - allowed <= cover <= COVER_GOAL[1] + allowed else []
    missed += ["at a bound"] if at_bound else []
    return {
        "ratio": float(ratio),
        "stderr": stderr,
        "width": float(width),
        "cover": cover,
        "missed": missed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is judged: a set or a law, how much of it is the stream, in which order, and on which host."""

    name: str
    share: float
    order: str
    host: str
    epsilon: float


def measure_strata(
    runs: Sequence[Run], seeds: range, settings_of: Callable[[Any, float], AgentsSettings],
    noise_of: Callable[[int], KeyedNoise], owners: int = 3000,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Judge each run; the settings are made of bounds and epsilon, the noise of a seed."""
    sets = {data.name: data for data in real_sets([run.name for run in runs])}
    for run in runs:
        bounds: Any = sets.get(run.name) or RealSet(
            name=run.name,
            owner=NOBODY,
            value=NOBODY,
            day=NOBODY,
            lower=0.0,
            upper=LAWS[run.name].upper,
        )
        settings, parts = settings_of(bounds, run.epsilon), []
        for seed in seeds:
            if run.name in LAWS:
                half = LAWS[run.name].draw(seed, owners)
            else:
                half = Half.split(
                    sets[run.name], seed, share=run.share, in_time=run.order == "time"
                )
            parts.append((half, answered(half, settings, noise_of(seed), run.host, METHODS)))
        for row in judge(parts, settings.lower, settings.upper):
            yield {
                "set": run.name, "share": run.share, "order": run.order, "host": run.host, "epsilon": run.epsilon, **row
            }  # fmt: skip


def runs_of(names: Sequence[str], epsilons: Sequence[float]) -> list[Run]:
    """Give every real set in both orders and thinned, and every law, on both hosts."""
    parts = {name: [(0.5, "shuffled"), (0.5, "time"), (0.05, "shuffled")] for name in names}
    parts |= {name: [(1.0, "shuffled")] for name in names if name in LAWS}
    return [
        Run(name=name, share=share, order=order, host=host, epsilon=epsilon)
        for name in names for share, order in parts[name] for host in HOSTS for epsilon in epsilons
    ]  # fmt: skip


def strata_table(rows: Sequence[dict[str, Any]], made: str) -> str:
    """Lay the rows out as Markdown, after how many miss each goal."""
    goals = ("error", "width", "cover", "at a bound")
    missed = {goal: sum(goal in row["missed"] for row in rows) for goal in goals}
    text = HEAD.format(
        made=made,
        rows=len(rows),
        **{goal.replace(" ", "_"): number for goal, number in missed.items()},
    )
    for row in rows:
        ours, alone = row["methods"][DEFAULT], row["methods"]["none"]
        columns = [
            row["set"], f"{row['share']:g}", row["order"], row["host"], f"{row['epsilon']:g}", row["stratum"],
            f"{row['owners']:,}", f"**{row['ratio']:.2f}** ({row['stderr']:.2f})", f"{row['width']:.2f}",
            f"{ours['width'] / max(alone['width'], 1e-300):.2f}", f"{row['cover']:.3f}", ", ".join(row["missed"]),
        ]  # fmt: skip
        text += "| " + " | ".join(columns) + " |\n"
    return text


METHODS = (DEFAULT, *PLAIN, "none")
HOSTS = ("frames", "engine")
NOBODY: Ints = np.zeros(0, np.int64)
HEAD = """# Groups of few rows

Made by `python benchmarks/real_data.py --strata build/small-groups.md {made}`.

Owners are judged by their number of values in the stream. `private_means` answers a group from its release, the
engine answers an agent with its own samples. *Error*
is the squared error relative to the better of `pooled_prior` and `james_stein`, with its standard error. *Width*
is the median width of the default's intervals. It is relative to the shortest of the registry that covers .92 or more.
*Of alone* is relative to intervals alone. *Part* is the share of values in the stream. The rest is the truth.

Goals: error at most 1.2, width at most 1.5, coverage from .93 to .985, no answer exactly at a bound without cause. Of
{rows} rows, {error} miss the first, {width} the second, {cover} the third and {at_a_bound} the last. Standard errors
are allowed for. The error is nan where the other's is within two standard errors of 0.

| set | part | order | host | epsilon | values | owners | error | width | of alone | covers | misses |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
