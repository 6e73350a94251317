"""Rounds: how an estimator of a population's mean is written, and the loop that runs any of them.

An estimator is a list of stages. The users are split between the stages by a keyed hash; each sends
one report of a fixed number of integers, made from what it knows (private) and what the stages
before it found (public). The reports of a stage are added up, as exact integers, and decoded into
what the next stage needs, or into the answer.

The engine, the Beam transforms and the simulator all call `assign`, `encode`, `tally` and `decode`;
an estimator knows nothing of any of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from meanstream.operators.noise.draw_owners import USER_REPORTS
from meanstream.operators.noise.keyed import NoiseIds, NoiseSource
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally


class Round(Protocol):
    """One stage: what a user sends, and what is made of it."""

    name: str
    epsilon: float
    """Privacy of one report."""

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one row of integers per user.

        The only method that sees private input.
        """
        ...

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which reports a user of this stage can have sent; the others are refused."""
        ...

    def tally(self, reports: Reports, public: Public) -> Tally:
        """Public: add up reports."""
        ...

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: what the next stage needs; the estimate, after the last stage.

        There may be no report at all.
        """
        ...

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse, with `ValueError`, what `decode` cannot have found upon `public`, whatever the reports.

        What comes from outside is checked before any user of the next stage is queried; see
        `rounds.round_results`. After it, `encode` of the next stage gives every user a report,
        whatever the user holds.
        """
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
    privacy_unit: ClassVar[str]
    options: frozenset[str]
    """Names of the options that it takes."""
    answers: ClassVar[str]
    estimand: ClassVar[str]
    assumes: ClassVar[str]
    of_a_paper: ClassVar[bool]
    candidate: ClassVar[bool]
    sizes_unknown: ClassVar[bool]
    taken_for: ClassVar[str]
    part: ClassVar[str]
    features_of: ClassVar[str]
    """As in `EstimatorTraits`, like the methods below."""

    def cut_back(self) -> str:
        """Say what happens to samples that are out of its reach."""
        ...

    def breaking_point(self) -> float | None:
        """Smallest spread of users' means that makes its interval miss, on [-1, 1], where that is known."""
        ...

    def describe(self) -> dict[str, Any]:
        """Public, plain data.

        Parameters chosen, and the predicted standard error on [-1, 1] as `predicted_stderr`.
        """
        ...


def run_protocol(
    estimator: Estimator, summaries: Summaries, stage: Ints, words: Sequence[RandomWords]
) -> Estimate:
    """Run all stages at once, in memory.

    Parameters
    ----------
    estimator : Estimator
        From `build_estimator`.
    summaries : Summaries
        Private: everyone's samples of the window.
    stage : int array (n,)
        Which stage asks each user, from `assign_protocol_stages`.
    words : sequence of RandomWords
        Random bits for the users of each stage, in their order.

    Returns
    -------
    Estimate
        On [-1, 1].
    """
    public: Public = {}
    for number, step in enumerate(estimator.rounds):
        asked = stage == number
        mine = summaries if asked.all() else summaries.take(asked)
        reports = step.encode(mine, public, words[number])
        found = step.decode(step.tally(reports, public), public)

        if isinstance(found, Estimate):
            return found
        public = found

    raise TypeError(f"{estimator.name}: the last stage gave no estimate")


def assign_protocol_stages(shares: Sequence[float], user: Words, key: bytes) -> Ints:
    """Tell which stage asks each user, by a keyed hash of the user.

    Parameters
    ----------
    shares : sequence of float
        Share of the users for each stage.
    user : uint64 array (n, 2)
        From `keyed_owner_words`.
    key : bytes
        Public, and another one for every round, such as its id; the split must depend on nothing
        that users control or that their data decide: not on their order, not on their number of
        samples.

    Returns
    -------
    int64 array (n,)

    Examples
    --------
    >>> from meanstream.operators.noise.keyed import keyed_owner_words
    >>> user = keyed_owner_words([f"user {i}" for i in range(1000)])
    >>> np.bincount(assign_protocol_stages([0.25, 0.75], user, b"2013-01-07")).tolist()
    [232, 768]
    """
    if len(shares) == 1:
        return np.zeros(len(user), np.int64)
    mixed = _mix(user[:, 0] ^ _mix(user[:, 1] ^ _word(key)))
    return protocol_stages_of_positions(
        shares, (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    )


def protocol_stages_of_positions(shares: Sequence[float], position: Floats) -> Ints:
    """Tell which stage each position in [0, 1) falls into."""
    edges = np.cumsum(np.asarray(shares, dtype=np.float64))[:-1]
    return np.searchsorted(edges, position, side="right").astype(np.int64)


class ReportWords:
    """Random bits of the reports of some users in one stage of one round.

    Parameters
    ----------
    noise : NoiseSource
        Keyed noise whose purpose names the round (`meanstream.operators.noise.keyed.KeyedNoise`).
    summaries : Summaries
        The users; what they report about is part of the key, so that no two different inputs share
        their noise.
    stage : int
        Number of the stage.

    Attributes
    ----------
    version : uint64 array (n,)
        Private: `protocol_input_version` of the users.

    Notes
    -----
    **Privacy.** The same secret, round, stage, user and samples give the same report: a retry repeats what was sent.
    """

    def __init__(self, noise: NoiseSource, summaries: Summaries, stage: int) -> None:
        self._noise = noise
        self.version = protocol_input_version(noise, summaries)
        self._ids = NoiseIds(summaries.user, np.full(len(summaries), stage, np.int64), self.version)

    def __call__(self, draw: int) -> Words:
        """128 bits per user, as a uint64 array (n, 2)."""
        return self._noise.bits(self._ids, USER_REPORTS.at(draw))


def protocol_input_version(noise: NoiseSource, summaries: Summaries) -> Words:
    """Keyed digest of what each user reports about, as a uint64 array (n,).

    Private, for keys of noise and the ledger.

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
