"""Every mechanism of the registries, audited on the code as it runs.

A new one is in the table without a line here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from meanstream.lab.evidence.audit_record import AuditFaultError, AuditRow
from meanstream.lab.evidence.canaries import compressed
from meanstream.lab.evidence.central_audit import central_neighbors, gaussian_shift, loss
from meanstream.lab.evidence.counters_audit import (
    counter_columns,
    gaussian_sampler_epsilon,
    laplace_sampler_epsilon,
    staircase_sampler_epsilon,
)
from meanstream.lab.evidence.local_audit import (
    TOLERANCE,
    bit_probabilities,
    hybrid_loss,
    laplace_loss,
    response_masses,
    subset_pmf,
    worst_bits_loss,
    worst_loss,
    worst_window_loss,
)
from meanstream.lab.evidence.neighboring_inputs import STREAMS, largest_move
from meanstream.lab.evidence.one_run import pure_one_run
from meanstream.lab.random_words import SeededWords
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import HISTOGRAM_SHARE
from meanstream.operators.counters.base import ENDLESS
from meanstream.operators.counters.registry import (
    COUNTERS,
    FORGETTING,
    NOISES,
    PURE,
    counter_noise,
    make_counter,
)
from meanstream.operators.estimators.registry import (
    build_estimator,
    distinct_estimators,
    estimator_class,
    estimator_taken_for,
)
from meanstream.operators.noise.distributions import GaussianNoise, LaplaceNoise, StaircaseNoise
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.loss_distributions import LossDistribution, repeated_losses
from meanstream.operators.noise.numerics import require_small_numeric_slack
from meanstream.operators.noise.window_budget import WindowBudget
from meanstream.operators.records import Ints
from meanstream.operators.rounds.channels.hybrid import HybridChannel
from meanstream.operators.rounds.channels.laplace import LaplaceChannel
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel
from meanstream.operators.rounds.channels.window_channel import WindowChannel
from meanstream.operators.rounds.round_records import Public, Summaries
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes, SubsetVotes
from meanstream.operators.rounds.votes.registry import VOTES, make_votes
from meanstream.operators.rounds.votes.unary_votes import BinaryVotes, UnaryVotes
from meanstream.operators.validation import closest_valid

HORIZON = 40
MOST_RELEASES = 200  # of a stream without end
MEMORY_RELEASES = 64
"""Of agents with a memory, whose draws are looked at one by one."""
BINS = 4
"""Of the votes: few enough that all rows and all reports can be listed."""
VALUES = (-1e300, -1.0, -1e-9, 0.0, 1 / 3, 1.0, 1e300)
WINDOWS = 52
"""Of a user, that share a budget."""
CENTRAL_USERS = 300
CENTRAL_PAIRS = 200
SAMPLED = 200_000
"""Reports that a mechanism of an unknown kind is requested."""

Audit = Callable[[], AuditRow]
_CODE = "exact: outcomes of all random bits counted"
_MOVED = "exact: what neighboring streams move through Agents, and each draw by itself"
_REPLAYED = "exact loss of noised numbers, replayed on neighbors"
_CONVOLVED = "exact: privacy losses of the worst mechanism, convolved"
_ALL_ROWS = f"{BINS} bins, all pairs of rows"


def mechanism_audits(
    names: Sequence[str] = ("all",), *, epsilon: float, delta: float
) -> dict[str, Audit]:
    """Give the audits of mechanisms of the registries, by the mechanism's name.

    Parameters
    ----------
    names : sequence of str
        Names; `all`, or the beginning of names up to a dot, stands for several.
    epsilon, delta : float
        What each is made for; delta only for Gaussian noise.

    Examples
    --------
    >>> row = mechanism_audits(["channel.one_bit"], epsilon=1.0, delta=1e-6)["channel.one_bit"]()
    >>> f"{row.ratio:.3f}", row.violated
    ('1.000', False)
    """
    known = _mechanisms()
    chosen: list[str] = []
    for name in names:
        matching = [
            mechanism
            for mechanism in known
            if name == "all" or f"{mechanism}.".startswith(f"{name}.")
        ]
        if not matching:
            rule = (
                "be all, or a mechanism of the registries or the beginning of its name, up to a dot"
            )
            raise ValueError(f"name must {rule}, got {name!r}{closest_valid(name, [*known])}")

        chosen += [mechanism for mechanism in matching if mechanism not in chosen]

    return {name: known[name](name, epsilon, delta) for name in chosen}


def _mechanisms() -> dict[str, Callable[[str, float, float], Audit]]:
    """Name everything that the registries hold, with what makes its audit."""
    audits: dict[str, Callable[[str, float, float], Audit]] = {}
    for counter in FORGETTING:
        audits[f"counter.{counter}.gaussian"] = partial(_of_forgetting, counter)

    for counter in COUNTERS:
        for noise in NOISES:
            if noise not in PURE or _takes_integers(counter):
                audits[f"counter.{counter}.{noise}"] = partial(_of_counter, counter, noise)

    audits["agents.means_and_votes"] = partial(_of_agents, {"horizon": HORIZON})
    with_histogram = {"horizon": HORIZON, "histogram_share": HISTOGRAM_SHARE}
    audits["agents.means_votes_and_histograms"] = partial(_of_agents, with_histogram)

    for memory in ("half-life", "window"):
        forgets = {"memory": f"{memory}:8s", "schedule": "every:1s"}
        audits[f"agents.{memory.replace('-', '_')}"] = partial(_of_agents, forgets)

    for channel in CHANNELS:
        audits[f"channel.{channel}"] = partial(_of_channel, channel)

    for votes in VOTES:
        audits[f"vote.{votes}"] = partial(_of_votes, votes)

    for estimator in distinct_estimators():
        if estimator_class(estimator).trust == "central":
            audits[f"central.{estimator}"] = partial(_of_central, estimator)

    audits["windows.gaussian"] = _of_gaussian_windows
    audits["windows.pure"] = _of_pure_windows
    return audits


def _takes_integers(counter: str) -> bool:
    try:
        _ = make_counter(counter, horizon=HORIZON).l1_sensitivity
    except ValueError:
        return False

    return True


def _of_gaussian_windows(name: str, epsilon: float, delta: float) -> Audit:
    """Audit a curator's sums over all windows that share a budget, at the noise that is drawn."""
    budget = WindowBudget(epsilon=epsilon, delta=delta, windows=WINDOWS)
    curator = estimator_taken_for("curator")
    estimator: Any = build_estimator(curator, epsilon=budget.each, users=CENTRAL_USERS)
    over = estimator.over_windows(budget)

    def audit() -> AuditRow:
        rng = np.random.default_rng(1)
        given = _binomial_users(rng)
        moved = 0.0
        for step in over.rounds:
            for one, other in central_neighbors(given, rng, same_size=False, number=CENTRAL_PAIRS):
                moved = max(moved, gaussian_shift(step, one, other, {}, SeededWords(rng, 1)))

        # A user moves each of its windows by that much at most: together by the root of their sum.
        proved = group_epsilon(math.sqrt(WINDOWS) * moved, delta)
        what = f"{WINDOWS} windows of a user jointly, {CENTRAL_PAIRS} pairs of neighbors"
        return _exact(name, epsilon, delta, proved, what, method=_REPLAYED)

    return audit


def _of_pure_windows(name: str, epsilon: float, delta: float) -> Audit:
    """Audit windows that share a budget by parts of epsilon, each at its worst."""
    each = WindowBudget(epsilon=epsilon, delta=delta, windows=WINDOWS).each

    def audit() -> AuditRow:
        # Losses are multiples of `each`: on a grid of that step nothing is rounded.
        likely = 1.0 / (1.0 + math.exp(-each))
        report = LossDistribution(each, -1, np.array([1.0 - likely, 0.0, likely]))
        together = repeated_losses(report, WINDOWS)
        what = f"{WINDOWS} yes/no reports jointly, losses convolved"
        return _exact(name, epsilon, delta, together.epsilon(delta), what, method=_CONVOLVED)

    return audit


def _of_counter(counter: str, noise: str, name: str, epsilon: float, delta: float) -> Audit:
    settings = AgentsSettings(
        lower=0,
        upper=1,
        epsilon=epsilon,
        delta=delta,
        counter=counter,
        noise=noise,
        horizon=HORIZON,
        spread_share=0,
    )

    return partial(audit_counter, name, settings)


def _of_forgetting(counter: str, name: str, epsilon: float, delta: float) -> Audit:
    """Audit a stream without end by its first releases, after which a sample moves nothing that could be seen."""
    endless = FORGETTING[counter](ENDLESS)
    span = FixedPoint(0.0, 1.0).span
    noise_of = partial(counter_noise, endless, delta=delta, sensitivity=span)
    fresh = noise_of(epsilon=epsilon)
    assert isinstance(fresh, GaussianNoise)  # noqa: S101 - the default
    slack = require_small_numeric_slack(
        lambda other: noise_of(epsilon=other), epsilon=epsilon, delta=delta, draws=endless.reach
    )

    def audit() -> AuditRow:
        moved = counter_columns(endless, MOST_RELEASES) * span
        proved = gaussian_sampler_epsilon(
            fresh, math.floor(float(np.sqrt((moved**2).sum(0)).max())), delta
        )
        what = (
            f"{MOST_RELEASES} of endless releases jointly; Gaussian draws turned into one direction"
        )

        return _exact(name, epsilon, delta, proved, what, slack=slack)

    return audit


def _of_agents(given: dict[str, Any], name: str, epsilon: float, delta: float) -> Audit:
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=epsilon, delta=delta, noise="gaussian", **given
    )
    return partial(_audit_agents, name, settings)


def _of_channel(channel: str, name: str, epsilon: float, delta: float) -> Audit:  # noqa: ARG001 - pure
    return partial(audit_channel, name, make_channel(channel, epsilon))


def _of_votes(votes: str, name: str, epsilon: float, delta: float) -> Audit:  # noqa: ARG001 - pure
    return partial(_audit_votes, name, make_votes(votes, epsilon, BINS))


def _of_central(estimator: str, name: str, epsilon: float, delta: float) -> Audit:  # noqa: ARG001 - its own
    return partial(
        _audit_central, name, build_estimator(estimator, epsilon=epsilon, users=CENTRAL_USERS)
    )


def audit_counter(name: str, settings: AgentsSettings) -> AuditRow:
    """Audit all releases of an agent together.

    What `step` does to one sample, and the law of the sampler.
    """
    delta = 0.0 if settings.pure else settings.delta
    fresh = settings.fresh

    try:
        columns = counter_columns(settings.mechanism, settings.horizon)
    except np.linalg.LinAlgError:
        what = f"{settings.horizon} releases jointly"
        without = "a release without a draw of its own shows what came in exactly"
        return _exact(name, settings.epsilon, delta, math.inf, what, fault=without)

    moved = columns * settings.grid.span * (settings.per_person or 1)

    if isinstance(fresh, LaplaceNoise):
        worst = moved[:, int(np.abs(moved).sum(0).argmax())]
        proved = laplace_sampler_epsilon(fresh, np.rint(worst).astype(np.int64))
        how = "draws of integers"
    elif isinstance(fresh, StaircaseNoise):
        worst = moved[:, int(np.abs(moved).sum(0).argmax())]
        proved = staircase_sampler_epsilon(fresh, np.rint(worst).astype(np.int64))
        how = "draws of integers"
    else:
        shift = math.floor(float(np.sqrt((moved**2).sum(0)).max()))
        proved = gaussian_sampler_epsilon(fresh, shift, settings.delta)
        how = "Gaussian draws turned into one direction"

    what = f"{settings.horizon} releases jointly; {how}"
    return _exact(name, settings.epsilon, delta, proved, what, slack=settings.numeric_slack)


def _audit_agents(name: str, settings: AgentsSettings) -> AuditRow:
    """Audit all that an agent releases together.

    Means and votes, histograms where there are some, or a memory.
    """
    releases = settings.most_releases or MEMORY_RELEASES
    released = (
        "means, votes and histograms" if settings.histogram is not None else "means and votes"
    )
    of_all = "" if settings.most_releases else "the first "
    what = f"{released} of {of_all}{releases} releases jointly, {STREAMS:,} pairs of streams; all draws are Gaussian"
    slack = settings.numeric_slack

    try:
        proved = group_epsilon(
            largest_move(compressed(settings), releases, np.random.default_rng(1)), settings.delta
        )
    except AuditFaultError as fault:
        return _exact(
            name,
            settings.epsilon,
            settings.delta,
            math.inf,
            what,
            slack=slack,
            method=_MOVED,
            fault=str(fault),
        )

    return _exact(name, settings.epsilon, settings.delta, proved, what, slack=slack, method=_MOVED)


def audit_channel(name: str, channel: Any) -> AuditRow:
    """Audit a local channel: by counting where its kind is known, else by its reports."""

    def count() -> float | None:
        if isinstance(channel, WindowChannel):
            places = channel.points - channel.window
            step = max(1, places // 12)
            middles = [-1.0 + (2 * j + 1) / places for j in [*range(0, places, step), places - 1]]
            return worst_window_loss(channel, [*middles, *VALUES])

        if isinstance(channel, HybridChannel):
            return hybrid_loss(channel, VALUES)
        if isinstance(channel, LaplaceChannel):
            return laplace_loss(channel)

        return None

    def report(inputs: Ints, words: SeededWords) -> Ints:
        return np.asarray(channel.randomize(2.0 * inputs - 1.0, words))[:, None]

    return _local(
        name, channel.epsilon, count, report, "values within, on and outside of the bounds"
    )


def _audit_votes(name: str, votes: Any) -> AuditRow:
    """Audit a vote: by counting where its kind is known, else by its reports."""

    def count() -> float | None:
        rows = np.arange(-1, votes.bins)
        if isinstance(votes, BinaryVotes):
            near = np.abs(np.arange(votes.bins)[:, None] - np.arange(votes.bins)) <= 1
            reach = np.vstack([np.zeros(votes.bins, np.bool_), near])
            # With as many bits as bins, any two rows are allowed: opposite ones are the worst.
            reach = np.vstack([reach, ~reach]) if votes.bits >= votes.bins else reach
            return worst_bits_loss(bit_probabilities(votes, reach, votes.bins))

        if isinstance(votes, UnaryVotes):
            return worst_bits_loss(bit_probabilities(votes, rows, votes.bins))
        if isinstance(votes, RandomizedResponseVotes):
            return worst_loss(response_masses(votes, int(row)) for row in rows)
        if isinstance(votes, SubsetVotes):
            return worst_loss(subset_pmf(votes, int(row), votes.categories) for row in rows)

        return None

    def report(inputs: Ints, words: SeededWords) -> Ints:
        return np.asarray(votes.randomize(inputs * (votes.bins - 1), words))

    return _local(name, votes.epsilon, count, report, _ALL_ROWS)


def _local(
    name: str,
    epsilon: float,
    count: Callable[[], float | None],
    report: Callable[[Ints, SeededWords], Ints],
    assumption: str,
) -> AuditRow:
    try:
        proved = count()
    except AuditFaultError as fault:
        return _exact(name, epsilon, 0.0, math.inf, assumption, fault=str(fault))

    if proved is not None:
        return _exact(name, epsilon, 0.0, proved, assumption)
    rng = np.random.default_rng(1)
    coins = rng.integers(0, 2, SAMPLED)

    return pure_one_run(name, report(coins, SeededWords(rng, SAMPLED)), coins, epsilon=epsilon)


def _audit_central(name: str, built: Any) -> AuditRow:
    """Audit the releases of a trusted curator.

    The same noised numbers about inputs that differ in one user.

    The loss of a pair of inputs is exact; the pairs are searched.
    """
    rng = np.random.default_rng(1)
    users = _binomial_users(rng)
    spent = dict.fromkeys([step.payers for step in built.rounds], 0.0)
    public: Public = {}
    assumption = f"{CENTRAL_PAIRS} pairs of inputs for each release were searched"

    try:
        for step in built.rounds:
            pairs = central_neighbors(
                users, rng, same_size=not built.protects_sizes, number=CENTRAL_PAIRS
            )
            words = SeededWords(rng, 1)
            spent[step.payers] += max(loss(step, one, other, public, words) for one, other in pairs)
            released = step.release(step.tally(step.encode(users, public), public), public, words)
            public = released if isinstance(released, dict) else public
    except AuditFaultError as fault:
        return _exact(
            name,
            built.epsilon,
            built.delta,
            math.inf,
            assumption,
            fault=str(fault),
            method=_REPLAYED,
        )

    return _exact(
        name, built.epsilon, built.delta, max(spent.values()), assumption, method=_REPLAYED
    )


def _binomial_users(rng: np.random.Generator) -> Summaries:
    """Users with yes/no samples, some many and most few."""
    weight = 1.0 / np.arange(1, 101)
    count = rng.choice(np.arange(1, 101), CENTRAL_USERS, p=weight / weight.sum())
    total = rng.binomial(count, 0.3)
    user = rng.integers(0, 2**64, (CENTRAL_USERS, 2), dtype=np.uint64)

    return Summaries(
        user=user, count=count, total=total * 2**20, first=(total > 0) * 2**20, span=2**20
    )


def _exact(
    name: str,
    claimed: float,
    delta: float,
    proved: float,
    assumption: str,
    *,
    slack: float = TOLERANCE,
    fault: str | None = None,
    method: str = _CODE,
) -> AuditRow:
    # What the audit's own logarithms of integers may be off by is no violation, nor what `explain`
    # says of float64.
    alarm = proved if proved > claimed + slack else min(proved, claimed)
    return AuditRow(
        name=name,
        claimed=claimed,
        delta=delta,
        proved=proved,
        ceiling=claimed,
        method=method,
        assumption=assumption,
        alarm=alarm,
        fault=fault,
    )
