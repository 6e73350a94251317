"""The search for the tuned plan's design.

Kind and shares by the tables, then every window at its own error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from scipy.special import ndtr

from meanstream.operators.estimators.plan.plan_design import PlanDesign, StageDesign
from meanstream.operators.estimators.plan.plan_risk import COARSE
from meanstream.operators.estimators.plan.plan_tables import (
    Problem,
    Tables,
    WindowRow,
    make_plan_tables,
)
from meanstream.operators.estimators.plan.window_effect import (
    window_uniform_nodes,
    window_vote_failure,
)
from meanstream.operators.records import Floats
from meanstream.operators.rounds.localization import Bins
from meanstream.operators.rounds.user_sizes import SizeDistribution

MOST_CLIPS = 3
_SPREADS = (2.0, 2.5, 3.2)
"""Half-widths of bins, in standard deviations of the smallest voters' means."""
_WIDEST = 0.2
_TRIED = 8
"""Widths of bins that are tried."""
_THRESHOLDS = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
"""Where a failure of the vote may be declared, relative to the mean report of a center far off."""
_LEAST_SHARE = 0.005
_LEAST_REPORTS = 30
_MOST_BINS = 512
_STAGE_COST = 1.02
"""A stage more takes another pass over everyone: it has to be worth two percent."""
_KEPT = 3
"""Designs that are computed in full detail."""
_LOST = 1.0
"""Squared error of an answer from a wrong pair of bins that nothing noticed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Vote:
    """A candidate for the first stage: bins, voters, and the row of the clip stage that follows."""

    half_width: float
    least: int
    inside: float
    row: WindowRow
    weight: Floats

    @property
    def bins(self) -> int:
        """Number of bins that cover [-1, 1]."""
        return Bins(self.half_width).count


def search_plan(
    epsilon: float,
    users: int,
    sizes: SizeDistribution,
    between_users: float = 0.0,
    *,
    far: bool = False,
) -> PlanDesign:
    """Find the design with the least predicted risk.

    Parameters
    ----------
    epsilon : float
        Of each user's one report.
    users : int
        How many.
    sizes : SizeDistribution
        Of users' numbers of samples.
    between_users : float
        Declared bound on the standard deviation of users' own means, on [-1, 1].
    far : bool
        Whether a group of them may lie anywhere, as large as this bound allows; else tails fall off
        exponentially.

    Examples
    --------
    >>> search_plan(1.0, 1000, SizeDistribution.parse("point:1")).kind
    'R'
    """
    problem = make_plan_tables(epsilon, users, sizes, between_users, far=far)
    best = _one_stage(problem)

    # With few users every stage more costs more than it can bring.
    if users < 3 * _LEAST_REPORTS:
        return best

    tables = Tables(
        make_plan_tables(epsilon, users, sizes, between_users, COARSE, far=far), problem
    )

    # Candidates are compared by interpolation; only the best are computed exactly.
    found = [
        _best_shares(tables, vote, clips)
        for vote in _starts(tables)
        for clips in range(1, MOST_CLIPS + 1)
    ]
    found.sort(key=lambda candidate: candidate[0])
    exact = [_exact(chain, shares) for _, chain, shares in found[:_KEPT]]

    # A stage more must pay: designs that are nearly as good have fewer.
    return min([best, *exact], key=lambda design: design.risk * _STAGE_COST ** len(design.stages))


def search_plan_with_shares(
    epsilon: float, users: int, sizes: SizeDistribution, between_users: float, shares: Floats
) -> PlanDesign:
    """Find the design of least risk among those with these shares.

    A first stage, and as many clip stages.
    """
    problem = make_plan_tables(epsilon, users, sizes, between_users)
    tables = Tables(make_plan_tables(epsilon, users, sizes, between_users, COARSE), problem)
    found = [_exact(_Chain(tables, vote, len(shares) - 1), shares) for vote in _starts(tables)]
    return min([_one_stage(problem), *found], key=lambda design: design.risk)


def _too_few(shares: Floats, users: int) -> bool:
    """Tell whether a stage would have so few reports that the normal laws of the computed risk mislead."""
    return bool(shares.min() < max(_LEAST_SHARE, _LEAST_REPORTS / users))


def _one_stage(problem: Problem) -> PlanDesign:
    """Everyone reports on [-1, 1]."""
    stage = search_full_stage(problem, 1.0)
    return PlanDesign(stages=(stage,), risk=stage.error**2, failure=0.0)


def search_full_stage(problem: Problem, share: float) -> StageDesign:
    """Make a stage whose users report their means on [-1, 1]."""
    name, guess, moment = problem.channel_for(problem.full_moment)
    return StageDesign(
        kind="full",
        share=share,
        channel=name,
        second_moment=guess,
        error=math.sqrt(moment / (share * problem.users)),
    )


def _starts(tables: Tables) -> list[_Vote | None]:
    """First stages worth a closer look.

    Reports on [-1, 1], and the two best votes, judged with two clip stages.
    """
    candidates = _votes(tables)
    rough = sorted(
        (_Chain(tables, vote, 2).risk(np.log([0.5, 0.5, 1.0])), i)
        for i, vote in enumerate(candidates)
    )

    return [None, *(candidates[i] for _, i in rough[:2])]


def _votes(tables: Tables) -> list[_Vote]:
    """Candidates for a vote: width of the bins, and who votes."""
    sizes = tables.problem.sizes
    between_users = tables.problem.between_users

    # Bins narrower than a user's own mean varies by tell nothing.
    narrowest = max(_SPREADS[0] * math.sqrt(1 / sizes.greatest + between_users**2), 1 / _MOST_BINS)
    votes = []
    weight = window_uniform_nodes(1.0)[1]
    widths = np.geomspace(narrowest, _WIDEST, _TRIED).tolist() if narrowest < _WIDEST else []

    for half_width in [float(f"{width:.3g}") for width in widths]:
        row = tables.after_vote(half_width)
        for spread in _SPREADS:
            # Who votes has so many samples that the own mean lies within the bin's width.
            needed = (half_width / spread) ** 2 - between_users**2
            least = math.ceil(1 / needed - 1e-9) if needed > 0 else sizes.greatest + 1
            inside = sizes.tail(least) * (2 * float(ndtr(spread)) - 1)
            if inside > 0 and Bins(half_width).count >= 5:
                votes.append(_Vote(half_width, least, inside, row, weight))

    return votes


class _Chain:
    """Risk of a design as a function of the stages' shares."""

    def __init__(self, tables: Tables, vote: _Vote | None, clips: int) -> None:
        self.tables = tables
        self.vote = vote
        self.clips = clips
        self.users = tables.problem.users
        self.full = tables.problem.channel_for(tables.problem.full_moment)[2]
        self.tolerable = 0.05 * tables.floor

    def shares(self, logs: Floats) -> Floats:
        weight = np.exp(logs - np.max(logs))
        return np.asarray(weight / weight.sum())

    def risk(self, logs: Floats) -> float:
        """Predicted risk, by interpolation."""
        shares = self.shares(logs)
        if _too_few(shares, self.users):
            return 10.0
        reports = self.users * shares

        # Without a vote the first reports are on all of [-1, 1].
        if self.vote is None:
            variance = self.full / reports[0]
            failure = 0.0
            following = reports[1:]
        else:
            choice, _, failure = self.first_window(self.vote, self.vote.row, reports)
            variance = self.vote.row.effect.risk(float(reports[1]), choice)
            following = reports[2:]

        # Each further stage clips at a window that the stage before it found.
        for count in following:
            variance = self.tables.clip(variance, float(count))

        return float(variance + failure)

    def first_window(
        self, vote: _Vote, row: WindowRow, reports: Floats
    ) -> tuple[int, float, float]:
        """Choose the window after a vote, the threshold of a failure, and compute what failures add to the risk."""
        problem = self.tables.problem
        effect = row.effect

        # The vote may elect a wrong pair of bins: its chance, and what a restart costs.
        far = window_vote_failure(problem.epsilon, float(reports[0]), vote.bins, vote.inside)
        left = float(reports[2:].sum())
        restart = self.full / left if left > 0 else _LOST

        # The next reports notice it where the true mean is far from the window.
        stderr = np.sqrt(problem.least_moment(effect.second_moment) / reports[1])
        threshold = _THRESHOLDS[:, None] * effect.far
        unnoticed = ndtr((threshold - effect.far) / stderr)
        alarm = ndtr((effect.near - threshold[..., None]) / stderr[:, None]) @ vote.weight
        # A false alarm costs the restart; a wrong pair costs it too, or, if nothing notices, much
        # more.
        every = far * (restart + unnoticed * _LOST) + alarm * restart

        # The threshold of least cost; among windows that fail tolerably, the one of least risk.
        best = every.argmin(axis=0)
        failure = every[best, np.arange(len(best))]
        cost = effect.cost(float(reports[1]))
        choice = int(
            np.argmin(np.where(failure <= max(self.tolerable, failure.min()), cost, np.inf))
        )

        return choice, float(threshold[best[choice], choice]), float(failure[choice])


def _best_shares(tables: Tables, vote: _Vote | None, clips: int) -> tuple[float, _Chain, Floats]:
    """Find the shares of least interpolated risk.

    Returns it with the cost of the stages, the chain and the shares.
    """
    from scipy.optimize import minimize  # noqa: PLC0415 - a quarter of a second of every start that searches nothing

    # Shares by their logarithms, the last one fixed: any numbers are a design.
    chain = _Chain(tables, vote, clips)
    start = np.append(np.full(clips, -1.0), 0.0)[-clips - 1 :]

    def risk(free: Floats) -> float:
        return math.log(chain.risk(np.append(free, 0.0)))

    simplex = np.vstack([start[:-1], start[:-1] + 0.7 * np.eye(clips)])
    found = minimize(
        risk,
        start[:-1],
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "xatol": 0.03, "fatol": 0.002, "maxfev": 120},
    )

    # Shares are public and printed: three digits suffice.
    shares = np.round(chain.shares(np.append(found.x, 0.0)), 3)
    shares[-1] = 1.0 - shares[:-1].sum()

    return math.exp(float(found.fun)) * _STAGE_COST ** len(shares), chain, shares


def _exact(chain: _Chain, shares: Floats) -> PlanDesign:
    """Design with these shares.

    Every window chosen again for the error that its center really has.
    """
    tables = chain.tables
    problem = chain.tables.problem
    reports = problem.users * shares

    # Rounded shares may leave a stage too small.
    if _too_few(shares, problem.users):
        return _one_stage(problem)
    stages = []
    failure = 0.0

    if chain.vote is None:
        stages.append(search_full_stage(problem, float(shares[0])))
    else:
        vote = chain.vote
        row = tables.exact_after_vote(chain.vote.half_width)
        choice, threshold, failure = chain.first_window(vote, row, reports)
        clip = _clip_stage(problem, row, choice, float(shares[1]))
        stages += [
            _vote_stage(vote, float(shares[0])),
            replace(clip, threshold=threshold if len(shares) > 2 else 0.0),
        ]

    # Each stage's window follows from the error of the one before.
    for share in shares[len(stages) :]:
        row = tables.exact_row(stages[-1].error ** 2)
        stages.append(
            _clip_stage(
                problem,
                row,
                int(np.argmin(row.effect.cost(float(share) * problem.users))),
                float(share),
            )
        )

    return PlanDesign(stages=tuple(stages), risk=stages[-1].error ** 2 + failure, failure=failure)


def _vote_stage(vote: _Vote, share: float) -> StageDesign:
    return StageDesign(
        kind="vote",
        share=share,
        error=2 * vote.half_width / math.sqrt(3),
        least=vote.least,
        half_width=vote.half_width,
        bins=vote.bins,
    )


def _clip_stage(problem: Problem, row: WindowRow, choice: int, share: float) -> StageDesign:
    """Make the clip stage of one candidate of a row."""
    effect = row.effect
    cap = float(row.caps[choice])
    name, guess, _ = problem.channel_for(float(effect.second_moment[choice]))

    return StageDesign(
        kind="clip",
        share=share,
        channel=name,
        second_moment=guess,
        cap=cap,
        shrunk=problem.sizes.mean_sqrt(cap) / math.sqrt(cap),
        window=float(row.windows[choice]),
        gain=float(effect.gain[choice]),
        error=math.sqrt(effect.risk(share * problem.users, choice)),
        bias=math.sqrt(float(effect.bias_squared[:, choice].max())),
    )
