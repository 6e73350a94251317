"""Rounds: how an estimator of a population's mean is written, and the loop that runs any of them.

An estimator is a list of stages. The users are split between the stages by a keyed hash; each sends one report of a
fixed number of integers, made from what it knows (private) and what the stages before it found (public). The reports of
a stage are added up, as exact integers, and decoded into what the next stage needs, or into the answer.

The engine, the Beam transforms and the simulator all call `assign`, `encode`, `tally` and `decode`; an estimator knows
nothing of any of them.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from operators.noise import NoiseIds, NoiseSource
from operators.records import Bools, Floats, Ints, Words
from operators.round_records import Estimate, Public, Reports, Summaries, Tally
from operators.validation import closest, require


class RandomWords(Protocol):
    """Uniform random bits for the reports of some users: keyed in production, seeded in simulations."""

    def __call__(self, draw: int) -> Words:
        """128 bits per user, as a uint64 array (n, 2); draws of different numbers are independent."""
        ...


class Round(Protocol):
    """One stage: what a user sends, and what is made of it."""

    name: str
    epsilon: float
    """Privacy of one report."""

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one row of integers per user. The only method that sees private input."""
        ...

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which reports a user of this stage can have sent; the others are refused."""
        ...

    def tally(self, reports: Reports, public: Public) -> Tally:
        """Public: add up reports."""
        ...

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: what the next stage needs; the estimate, after the last stage. There may be no report at all."""
        ...


class Estimator(Protocol):
    """A population's mean from one report of each user; see `build_estimator`."""

    name: str
    mode: str
    epsilon: float
    """Privacy of everything that one user sends."""
    trust: str
    rounds: Sequence[Round]
    shares: Sequence[float]
    """Share of the users that each stage asks; they add to 1."""

    def describe(self) -> dict[str, Any]:
        """Public, plain data: parameters chosen, and the predicted standard error on [-1, 1] as `predicted_stderr`."""
        ...


ESTIMATORS: dict[str, str] = {
    "one_shot": "operators.one_shot:OneShot",
    "dame": "operators.dame:Dame",
    "kent": "operators.kent:Kent",
    "kent.univariate": "operators.kent:Kent",
    "kent.linf": "operators.kent_linf:Linf",
    "kent.l2": "operators.kent_l2:L2",
    "kent.sparse_select": "operators.kent_sparse_select:SparseSelect",
    "kent.sparse_threshold": "operators.kent_sparse_threshold:SparseThreshold",
    "kent.density": "operators.kent_density:Density",
    "kent.mixture": "operators.kent_mixture:Mixture",
    "kent.cover": "operators.cover_select:CoverSelect",
    "duchi": "operators.duchi:Duchi",
    "item": "operators.baselines:Item",
    "semi": "operators.baselines:Semi",
    "split": "operators.baselines:Split",
    "plan": "operators.plan:Plan",
    "adaptive": "operators.adaptive:Adaptive",
    "cummings.ideal": "operators.cummings_ideal:Ideal",
    "cummings.known_sizes": "operators.cummings_known_sizes:KnownSizes",
    "cummings.private_sizes": "operators.cummings_private_sizes:PrivateSizes",
    "cummings.ratio": "operators.cummings_ratio:Ratio",
}
"""Name of each estimator, and where its class is: "module:Class". Built by `build_estimator`."""


def build_estimator(name: str, *, epsilon: float, users: int, **options: Any) -> Estimator:
    """Build an estimator of the registry.

    Parameters
    ----------
    name : str
        A key of `ESTIMATORS`.
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    **options
        Those of the estimator: `sizes`, `mode`, `between_users`, `level`...

    Raises
    ------
    ValueError
        If the name is unknown, or an option is out of range or not one of this estimator's.
    """
    build = estimator_class(name)
    known = build.options
    for option in options:
        if option not in known:
            raise ValueError(f"{name} takes no option {option!r}{closest(option, sorted(known))}")
    for option, parameter in inspect.signature(build).parameters.items():
        missing = parameter.default is parameter.empty and option in known and option not in options
        require(not missing, option, f"be given for {name}", None)
    return cast(Estimator, build(epsilon=epsilon, users=users, **options))


def estimator_class(name: str) -> Any:
    """Import the class of an estimator of the registry; its `options` are the names that it takes.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    require(name in ESTIMATORS, "estimator", f"be one of {', '.join(ESTIMATORS)}", name)
    module, _, attribute = ESTIMATORS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def run_rounds(estimator: Estimator, summaries: Summaries, stage: Ints, words: Sequence[RandomWords]) -> Estimate:
    """Run all stages at once, in memory.

    Parameters
    ----------
    estimator : Estimator
        From `build_estimator`.
    summaries : Summaries
        Private: everybody's samples of the window.
    stage : int array (n,)
        Which stage asks each user, from `assign_stages`.
    words : sequence of RandomWords
        Random bits for the users of each stage, in their order.

    Returns
    -------
    Estimate
        On [-1, 1].
    """
    public: Public = {}
    for number, step in enumerate(estimator.rounds):
        mine = summaries.take(stage == number)
        reports = step.encode(mine, public, words[number])
        found = step.decode(step.tally(reports, public), public)
        if isinstance(found, Estimate):
            return found
        public = found
    raise TypeError(f"{estimator.name}: the last stage gave no estimate")


def assign_stages(shares: Sequence[float], user: Words, key: bytes) -> Ints:
    """Tell which stage asks each user, by a keyed hash of the user.

    Parameters
    ----------
    shares : sequence of float
        Share of the users for each stage.
    user : uint64 array (n, 2)
        From `owner_words`.
    key : bytes
        Public, and another one for every round, such as its id; the split must depend on nothing that users control
        or that their data decide: not on their order, not on their number of samples.

    Returns
    -------
    int64 array (n,)

    Examples
    --------
    >>> from operators.noise import owner_words
    >>> user = owner_words([f"user {i}" for i in range(1000)])
    >>> np.bincount(assign_stages([0.25, 0.75], user, b"2013-01-07")).tolist()
    [232, 768]
    """
    if len(shares) == 1:
        return np.zeros(len(user), np.int64)
    mixed = _mix(user[:, 0] ^ _mix(user[:, 1] ^ _word(key)))
    return stages_of_positions(shares, (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def stages_of_positions(shares: Sequence[float], position: Floats) -> Ints:
    """Tell which stage each position in [0, 1) falls into."""
    edges = np.cumsum(np.asarray(shares, dtype=np.float64))[:-1]
    return np.searchsorted(edges, position, side="right").astype(np.int64)


class ReportWords:
    """Random bits of the reports of some users in one stage of one round.

    Parameters
    ----------
    noise : NoiseSource
        Keyed noise whose purpose names the round (`operators.noise.KeyedNoise`).
    summaries : Summaries
        The users; what they report about is part of the key, so that no two different inputs share their noise.
    stage : int
        Number of the stage.

    Notes
    -----
    **Privacy.** The same secret, round, stage, user and samples give the same report: a retry repeats what was sent.
    """

    def __init__(self, noise: NoiseSource, summaries: Summaries, stage: int) -> None:
        self._noise = noise
        version = input_version(noise, summaries)
        self._ids = NoiseIds(summaries.user, np.full(len(summaries), stage, np.int64), version)

    def __call__(self, draw: int) -> Words:
        """128 bits per user, as a uint64 array (n, 2)."""
        return self._noise.bits(self._ids, draw)


def input_version(noise: NoiseSource, summaries: Summaries) -> Words:
    """Keyed digest of what each user reports about, as a uint64 array (n,); private, for keys of noise and the ledger.

    Parameters
    ----------
    noise : NoiseSource
        Keyed noise whose purpose names the round.
    summaries : Summaries
        The users.
    """
    if summaries.total.ndim == 1:
        version = noise.version_of(summaries.count, summaries.total)
        return version ^ noise.version_of(np.full(len(summaries), -1), summaries.first)
    # Chained, column after column: exchanging two coordinates must meet other bits.
    version = noise.version_of(summaries.count, np.full(len(summaries), summaries.total.shape[1]))
    for column in (*summaries.total.T, *summaries.first.T):
        version = noise.version_of(version.view(np.int64), column)
    return version


def _word(key: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little"))


def _mix(x: Words) -> Words:
    """Scramble: every bit of the input changes about half of the output's (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
