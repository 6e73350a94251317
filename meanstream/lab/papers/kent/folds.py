"""Folds of users: each reports about one or a few coordinates of its vector, as to a univariate estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from meanstream.lab.papers.kent.public_hash import hash_below, hash_users
from meanstream.operators.noise.keyed import MAX_DRAWS
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Ints, Words
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    Count,
    StageFound,
    Told,
    refuse_result,
    result_unchanged,
)
from meanstream.operators.validation import require

DRAWS = 2048
"""Draws of random bits that a report about one coordinate may take."""

PLACES = 2**20
"""Users are spread over that many places, and the coordinates are distinguished by place."""

_KEPT = 8

View = Callable[[Summaries], Summaries]


class FoldsFound(StageFound, frozen=True, kw_only=True):
    """Public: what is known between stages of coordinates.

    Attributes
    ----------
    users : int
        Who took part so far.
    inner : list of dict
        What the univariate estimator passes on for each fold.
    selected, voters, coordinates : list of int, int, list of int
        After a vote for coordinates: those that were marked, by how many voters, and those that are
        measured, the coordinate of each fold.
    stages : list of dict
        What the vote tells of itself.
    """

    users: Count | None = None
    inner: list[dict[str, Any]] | None = None
    selected: list[Count] | None = None
    voters: Count | None = None
    coordinates: list[Count] | None = None
    stages: Told = msgspec.field(default_factory=list)


Finish = Callable[[Sequence[Estimate], FoldsFound, int], Estimate]


@dataclass(frozen=True, slots=True)
class Folds:
    """Which coordinates each user reports about.

    Neighbors, from a place that a hash of the user decides.

    Parameters
    ----------
    coordinates : int
        Number of coordinates, one fold of users for each.
    participation : int
        How many coordinates each user reports about.
    seed : str
        Public; another one splits the users again.

    Notes
    -----
    **Privacy.** A user's coordinates depend on who it is, not on its data.
    """

    coordinates: int
    participation: int
    seed: str

    def __post_init__(self) -> None:
        rule = f"lie between 1 and the number of coordinates, {self.coordinates}"
        require(
            1 <= self.participation <= self.coordinates, "participation", rule, self.participation
        )
        most = MAX_DRAWS // DRAWS
        require(
            self.participation <= most, "participation", f"be at most {most}", self.participation
        )

    def places(self, user: Words) -> Ints:
        """Tell each user's place, from 0 to `PLACES` - 1."""
        return hash_below(hash_users(user, b"fold " + self.seed.encode()), PLACES)

    @staticmethod
    def fold(place: Ints, step: int, count: int) -> Ints:
        """Tell the fold, of that many, that users at these places report about.

        Their first, second... one.

        Examples
        --------
        >>> Folds.fold(np.array([0, 2**19, 2**20 - 1]), 1, 3)
        array([1, 2, 0])
        """
        return (place * count // PLACES + step) % count


class FoldRound:
    """One stage of a univariate estimator, for every coordinate at once.

    Parameters
    ----------
    inner : Round
        The stage of the univariate estimator; its epsilon is that of one coordinate.
    folds : Folds
    view : callable, optional
        Private: turns summaries into those whose coordinates are reported about, such as rotated
        ones.
    finish : callable, optional
        Public: makes the answer of the coordinates' estimates; needed for a last stage.

    Notes
    -----
    **Privacy.** Local: a report holds the user's place, which is public, and one report of the inner stage for
    each of its `participation` coordinates, whose privacy losses add up to `epsilon`. All coordinates of a user are
    protected together, as its number of samples is.

    Public values between the stages are `FoldsFound`.
    """

    def __init__(
        self, inner: Round, folds: Folds, *, view: View | None = None, finish: Finish | None = None
    ) -> None:
        self.name = inner.name
        self.epsilon = inner.epsilon * folds.participation
        self.inner = inner
        self.folds = folds
        self._view = view
        self._finish = finish

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: the user's place, then a report for each coordinate."""
        place = self.folds.places(summaries.user)
        seen = summaries if self._view is None else self._view(summaries)
        known = FoldsFound.of(public)
        coordinates = np.asarray(self._coordinates(known), np.int64)
        parts = [place[:, np.newaxis]]

        for k in range(self.folds.participation):
            fold = self.folds.fold(place, k, len(coordinates))
            coordinate = _coordinate(seen, coordinates[fold])
            parts.append(self._encode_one(coordinate, fold, known, _Later(words, k * DRAWS)))

        return np.concatenate(parts, axis=1)

    def _encode_one(
        self, one: Summaries, fold: Ints, known: FoldsFound, words: RandomWords
    ) -> Reports:
        states = self._states(known)
        if not known.inner:  # nothing was found before: all folds are alike
            return self.inner.encode(one, states[0], words)
        nothing = self.inner.encode(
            one.take(slice(0, 0)), states[0], _Chosen(words, np.empty(0, np.int64))
        )
        reports = np.zeros((len(one), nothing.shape[1]), np.int64)

        for number, state in enumerate(states):
            rows = np.flatnonzero(fold == number)
            if len(rows):
                reports[rows] = self.inner.encode(one.take(rows), state, _Chosen(words, rows))

        return reports

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which rows name a place, and hold what users of that stage can send."""
        good = (reports[:, 0] >= 0) & (reports[:, 0] < PLACES)
        known = FoldsFound.of(public)
        for reports_of_fold, fold in self._parts(np.where(good[:, np.newaxis], reports, 0), known):
            for number, state in enumerate(self._states(known)):
                rows = fold == number
                good[rows] &= self.inner.valid(reports_of_fold[rows], state)

        return np.asarray(good, dtype=np.bool_)

    def tally(self, reports: Reports, public: Public) -> Tally:
        """Public: for each fold the number of its reports and what the inner stage adds up."""
        if not len(reports):
            return Tally()
        known = FoldsFound.of(public)
        states = self._states(known)
        tallies = [Tally()] * len(states)

        for reports_of_fold, fold in self._parts(reports, known):
            order = np.argsort(fold, kind="stable")
            edges = np.searchsorted(fold[order], np.arange(len(states) + 1))
            for number, state in enumerate(states):
                rows = order[edges[number] : edges[number + 1]]
                if len(rows):
                    tallies[number] += self.inner.tally(reports_of_fold[rows], state)

        width = max(len(tally_of_fold.sums) for tally_of_fold in tallies)
        sums = [
            (tally_of_fold.n, *(tally_of_fold.sums or (0,) * width)) for tally_of_fold in tallies
        ]
        return Tally(
            len(reports), tuple(number for tally_of_fold in sums for number in tally_of_fold)
        )

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: what the inner stage makes of every fold, or the answer of all of them."""
        known = FoldsFound.of(public)
        states = self._states(known)
        width = len(tally.sums) // len(states)
        users = (known.users or 0) + tally.n
        decoded: list[Any] = []

        for number, state in enumerate(states):
            n, *sums = tally.sums[number * width : (number + 1) * width] or (0,)
            decoded.append(self.inner.decode(Tally(n, tuple(sums)) if n else Tally(), state))

        if any(isinstance(result_of_fold, Estimate) for result_of_fold in decoded):
            if self._finish is None:
                raise TypeError(f"{self.name}: an answer where another stage follows")
            return self._finish(decoded, known, users)

        return msgspec.structs.replace(known, users=users, inner=decoded).plain()

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what the inner stage cannot have found of every fold."""
        if self._finish is not None:
            refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

        now = FoldsFound.of(found)
        before = FoldsFound.of(public)
        states = self._states(before)
        same = msgspec.structs.replace(before, users=now.users, inner=now.inner)
        result_unchanged(now, same, "it")

        if now.users is None or now.users < (before.users or 0):
            refuse_result("users", f"be at least {before.users or 0}", "fewer")

        if now.inner is None or len(now.inner) != len(states):
            refuse_result("inner", f"be a list of {len(states)} entries", "another one")

        for inner, state in zip(now.inner, states, strict=True):
            self.inner.check(inner, state)

    def _parts(self, reports: Reports, known: FoldsFound) -> list[tuple[Reports, Ints]]:
        """Split rows into the reports about each coordinate, with its fold."""
        p = self.folds.participation
        width = (reports.shape[1] - 1) // p
        count = len(self._states(known))
        return [
            (
                np.ascontiguousarray(reports[:, 1 + k * width : 1 + (k + 1) * width]),
                self.folds.fold(reports[:, 0], k, count),
            )
            for k in range(p)
        ]

    def _states(self, known: FoldsFound) -> list[Public]:
        return list(known.inner or ()) or [{}] * len(self._coordinates(known))

    def _coordinates(self, known: FoldsFound) -> Sequence[int]:
        """Give the coordinate of each fold."""
        if known.coordinates is None:
            return range(self.folds.coordinates)
        return known.coordinates


def _coordinate(summaries: Summaries, which: Ints) -> Summaries:
    """Private: one coordinate of each user."""
    rows = np.arange(len(summaries))
    return replace(
        summaries, total=summaries.total[rows, which], first=summaries.first[rows, which]
    )


class _Later:
    """Random bits from another draw on.

    The first ones are kept, since every fold of a stage asks for them.
    """

    def __init__(self, words: RandomWords, first: int) -> None:
        self._words = words
        self._first = first
        self._kept: dict[int, Words] = {}

    def __call__(self, draw: int) -> Words:
        require(0 <= draw < DRAWS, "draw", f"lie below {DRAWS}", draw)
        if draw in self._kept:
            return self._kept[draw]
        made = self._words(self._first + draw)

        if draw < _KEPT:
            self._kept[draw] = made

        return made


class _Chosen:
    """Random bits of some of the users."""

    def __init__(self, words: RandomWords, rows: Ints) -> None:
        self._words = words
        self._rows = rows

    def __call__(self, draw: int) -> Words:
        return self._words(draw)[self._rows]
