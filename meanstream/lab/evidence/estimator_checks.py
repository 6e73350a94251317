"""Checks of estimators of rounds.

What each keeps to, ours and other people's; see `meanstream.testing`.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from meanstream.lab.evidence.one_run import audit_epsilon_lower_bound
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator, estimator_name
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Ints
from meanstream.operators.rounds.central_rounds import run_central
from meanstream.operators.rounds.round_protocol import assign_protocol_stages
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries
from meanstream.operators.rounds.round_results import extreme_users, result_as_plain_data

SPAN = 2**20
SAMPLED = 20_000
"""Reports of one user that the check of epsilon draws; half of them choose the events."""
EXTREME: tuple[Any, ...] = (
    *(0.0, -0.0, 5e-324, -5e-324, 1e-308, 2.0**-30, -1e-9, 0.5, -1.0, 1.0, 1.5, 2, -3, 7),
    *(1e300, -1e300, 1.7e308, 1e13, 10**400, -(10**30), 2**63, math.inf, -math.inf, math.nan),
    *(True, None, "", "1", "NaN", [], [0.0], {}, {"a": 1}, [[[]]]),
)
"""What a hostile statistician may write in place of any number of a stage's result."""


@dataclass(frozen=True)
class EstimatorTrial:
    """An estimator to check, and users for it.

    Attributes
    ----------
    estimator : Estimator
        As `build_estimator` built it.
    dimension : int
        Coordinates of a sample; 0 for a number.
    """

    estimator: Any
    dimension: int = 0

    def users(self, n: int, seed: int = 1) -> Summaries:
        """Make up users around a mean of 0.3, with numbers of samples as different as can be."""
        rng = np.random.default_rng(seed)
        count = rng.choice([1, 2, 100, 400, 1000, 2**20], n)
        shape = (n, self.dimension) if self.dimension else (n,)
        first = np.rint((np.clip(rng.normal(0.3, 0.02, shape), -1, 1) + 1) * SPAN / 2).astype(
            np.int64
        )
        total = first * (count[:, None] if self.dimension else count)
        owners = keyed_owner_words([f"user {i}" for i in range(n)])

        return Summaries(user=owners, count=count, total=total, first=first, span=SPAN)

    def stages(self, users: Summaries, seed: int = 1) -> Iterator[tuple[Any, Public, Reports, Any]]:
        """Run a round honestly.

        Give each stage with what was known before it, its reports and what it found.
        """
        public: Public = {}
        stage_of = assign_protocol_stages(self.estimator.shares, users.user, b"a round")
        for number, stage in enumerate(self.estimator.rounds):
            users_of_stage = users.take(stage_of == number)
            reports = stage.encode(
                users_of_stage,
                public,
                SeededWords(np.random.default_rng([seed, number]), len(users_of_stage)),
            )
            decoded = stage.decode(stage.tally(reports, public), public)
            plain: Any = decoded

            if not isinstance(decoded, Estimate):
                plain = json.loads(json.dumps(decoded, default=lambda x: x.tolist()))

            yield stage, public, reports, plain
            public = plain


def check_estimator(
    build: type[Any], *, epsilon: float = 2.0, users: int = 20_000, **options: Any
) -> None:
    """Check an estimator of rounds as the tests of Meanstream check its own.

    Parameters
    ----------
    build : type
        Its class: `meanstream.operators.rounds.round_protocol.Estimator`, or `CentralEstimator` of
        a trusted curator.
    epsilon, users : float, int
        What it is built with.
    **options
        Its own. `dimension` is also the number of coordinates of a sample.

    Raises
    ------
    AssertionError
        Saying what does not hold.

    Notes
    -----
    **Privacy.** Reports of the first stage are drawn for users at opposite ends, and fail the check if they prove a
    loss beyond epsilon (confidence 1 - 1e-6). Passing proves nothing: write the argument, and enumerate the channel.

    Examples
    --------
    >>> from meanstream.operators.estimators.one_shot import OneShot
    >>> class Mine(OneShot):
    ...     name = "mine"
    >>> check_estimator(Mine)
    """
    built = build_estimator(estimator_name(build), epsilon=epsilon, users=users, **options)
    trial = EstimatorTrial(built, int(options.get("dimension", 0)))
    for check in ESTIMATOR_CHECKS:
        check(trial)


def hold(ok: object, what: str) -> None:
    """Raise `AssertionError` with what does not hold unless `ok`."""
    if not ok:
        raise AssertionError(what)


def estimator_describes_itself(trial: EstimatorTrial) -> None:
    """Check the public description, the shares and the stages' epsilons."""
    estimator = trial.estimator
    described = estimator.describe()
    hold(json.loads(json.dumps(described)) == described, "describe() must give plain data")
    hold(
        math.isclose(sum(estimator.shares), 1.0),
        f"shares must add to 1, got {sum(estimator.shares)}",
    )
    hold(
        estimator.trust in ("local", "central"),
        f"trust must be local or central, got {estimator.trust!r}",
    )

    hold(
        estimator.trust == "central" or len(estimator.shares) == len(estimator.rounds),
        "there must be a share for each stage",
    )
    most = max(stage.epsilon for stage in estimator.rounds)
    hold(
        most <= estimator.epsilon * (1 + 1e-12),
        f"no stage's epsilon may be above {estimator.epsilon}, got {most}",
    )


def estimator_reports_add_up(trial: EstimatorTrial) -> None:
    """Check that reports are valid rows of integers, follow from the random bits, and add up in any order."""
    if trial.estimator.trust == "central":
        return

    for (stage, public, reports, _), again in zip(
        *(trial.stages(trial.users(1500)) for _ in range(2)), strict=True
    ):
        hold(
            reports.ndim == 2 and reports.dtype.kind == "i",
            f"{stage.name}: reports must be rows of integers",
        )
        hold(
            (reports == again[2]).all(),
            f"{stage.name}: the same random bits must give the same reports",
        )

        hold(
            np.all(stage.valid(reports, public)),
            f"{stage.name}: valid() must accept what encode() gives",
        )
        whole = stage.tally(reports, public)
        half = len(reports) // 2
        parts = stage.tally(reports[half:], public) + stage.tally(reports[:half], public)
        hold(whole == parts, f"{stage.name}: tallies of parts must add up to that of all")


def estimator_accepts_its_results(trial: EstimatorTrial) -> None:
    """Check that `check` accepts what honest users lead to, and what no report leads to."""
    if trial.estimator.trust == "central":
        return

    for n, seed in ((1500, 1), (1500, 2), (0, 1)):
        for stage, before, _, decoded in trial.stages(trial.users(n), seed):
            if not isinstance(decoded, Estimate):
                result_as_plain_data(decoded)
                stage.check(decoded, before)
                hold(
                    not _accepted(trial.estimator.rounds[-1], decoded, before),
                    "nothing can follow the last stage",
                )


def estimator_answers(trial: EstimatorTrial) -> None:
    """Check that there is an answer with an interval on [-1, 1], for many users and for none."""
    for n in (1500, 0):
        estimator = trial.estimator
        users = trial.users(n)
        if estimator.trust == "central":
            words = [
                SeededWords(np.random.default_rng([1, number]), 1)
                for number in range(len(estimator.rounds))
            ]
            answer = run_central(
                estimator,
                users,
                assign_protocol_stages(estimator.shares, users.user, b"a round"),
                words,
            )
        else:
            *_, (_, _, _, answer) = trial.stages(users)

        hold(isinstance(answer, Estimate), "the last stage must give an Estimate")
        inside = (
            (answer.lower <= answer.value)
            & (answer.value <= answer.upper)
            & (np.abs(answer.value) <= 1)
        )
        hold(
            np.all(inside),
            f"an answer must lie in its interval and in [-1, 1], got {answer.value} of {n} users",
        )


def estimator_keeps_epsilon(trial: EstimatorTrial) -> None:
    """Check that reports of users at opposite ends do not prove a loss beyond the first stage's epsilon."""
    stage = trial.estimator.rounds[0]
    if trial.estimator.trust == "central":
        return
    ends = extreme_users(SPAN, (trial.dimension,) if trial.dimension else ())
    other = (
        int(np.flatnonzero(ends.count == 1)[-1])
        if trial.estimator.privacy_unit == "sample"
        else len(ends) - 1
    )
    owners = np.random.default_rng(7).integers(0, 2**64, (SAMPLED, 2), np.uint64)
    drawn = []

    for row in (0, other):
        users = replace(ends.take(np.full(SAMPLED, row)), user=owners)
        drawn.append(stage.encode(users, {}, SeededWords(np.random.default_rng([7, row]), SAMPLED)))

    half = SAMPLED // 2
    events = [
        _event(column, cut) for column, cut in _cuts(np.concatenate([one[:half] for one in drawn]))
    ]
    lost = audit_epsilon_lower_bound(drawn[0][half:], drawn[1][half:], events, delta=0.0)
    hold(
        lost <= stage.epsilon,
        f"{stage.name}: reports lose at least epsilon {lost:.3g}, declared {stage.epsilon:.3g}",
    )


def estimator_survives_hostile_results(trial: EstimatorTrial) -> None:
    """Check that whatever `check` accepts, every user of the next stage sends a valid report, without a warning."""
    if trial.estimator.trust == "central" or len(trial.estimator.rounds) < 2:
        return
    users = extreme_users(SPAN, (trial.dimension,) if trial.dimension else ())
    ran = list(trial.stages(trial.users(min(1500 * len(trial.estimator.rounds), SAMPLED))))
    refused = 0

    for (stage, before, _, result), (after, *_) in pairwise(ran):
        for number, hostile in enumerate(_hostile(result)):
            if not _accepted(stage, hostile, before):
                refused += 1
                continue

            words = SeededWords(np.random.default_rng([5, number]), len(users))
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                reports = after.encode(users, hostile, words)

            ok = len(reports) == len(users) and np.all(after.valid(reports, hostile))
            hold(ok, f"{after.name}: each user must send a valid report upon {str(hostile)[:200]}")

    hold(refused > 100, f"check() must refuse what a stage cannot find, refused {refused} results")


def _cuts(chosen: Ints) -> list[tuple[int, float]]:
    """Choose thresholds of each of the first columns.

    Between a few values, or at quantiles of many.
    """
    thresholds = []
    for column in range(min(chosen.shape[1], 16)):
        values = np.unique(chosen[:, column])
        values_between = (
            values[:-1] + 0.5
            if len(values) <= 16
            else np.quantile(chosen[:, column], np.linspace(0.05, 0.95, 10))
        )
        thresholds += [(column, float(cut)) for cut in values_between]

    return thresholds or [(0, 0.5)]


def _event(column: int, cut: float) -> Callable[[Any], Any]:
    return lambda reports: reports[:, column] > cut


def _accepted(stage: Any, found: Any, before: Public) -> bool:
    try:
        result_as_plain_data(found)
        stage.check(found, before)
    except ValueError:
        return False

    return True


def _hostile(found: Any) -> Iterator[Any]:
    """Change a result at each place to each extreme value, or leave the place out."""
    for path in result_paths(found):
        for value in (*EXTREME, KeyError):
            yield changed_result(found, path, value)

    yield {**found, "more": 1}
    yield from EXTREME


def result_paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give every place of a result: of alike entries of long lists, the first and the last."""
    if path:
        yield path

    entries: Sequence[tuple[Any, Any]] = []
    if isinstance(tree, dict):
        entries = list(tree.items())
    elif isinstance(tree, list):
        entries = list(enumerate(tree))
        entries = entries if len(entries) < 4 else [entries[0], entries[-1]]

    for key, value in entries:
        yield from result_paths(value, (*path, key))


def changed_result(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Give the result with another value at a place; without the place for `KeyError`."""
    out = copy.deepcopy(found)
    parent = out
    for key in path[:-1]:
        parent = parent[key]

    if value is KeyError:
        del parent[path[-1]]
    else:
        parent[path[-1]] = copy.deepcopy(value)

    return out


ESTIMATOR_CHECKS: tuple[Callable[[EstimatorTrial], None], ...] = (
    estimator_describes_itself,
    estimator_reports_add_up,
    estimator_accepts_its_results,
    estimator_answers,
    estimator_keeps_epsilon,
    estimator_survives_hostile_results,
)
"""What `check_estimator` runs."""
