"""What moves between the steps of a round on Beam.

`UserBatch` and `UserSamples` are private. `ReportBatch` is public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.rounds.round_records import Reports
from meanstream.pipelines.beam.element_types.columns_coder import (
    register_elements,
    register_records,
)
from meanstream.pipelines.beam.element_types.packed import packed_head
from meanstream.streaming.rounds.summarize_users import UserSums, join_summaries
from meanstream.streaming.rounds.window_widths import Window


class ForRound(ABC):
    """Private: what a round receives of some users.

    Their sums, or samples that are summed up when all are there.
    """

    __slots__ = ()
    window: Window

    @property
    @abstractmethod
    def n_samples(self) -> int:
        """How many samples it holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UserBatch(ForRound):
    """Private: what some users have sent within one window; one entry per user.

    Attributes
    ----------
    window : Window
        Microseconds.
    names : pyarrow array of strings (n,)
        The users; public, as that they took part is.
    words : uint64 array (n, 2)
        Hash of each name (`meanstream.operators.noise.keyed.keyed_owner_words`).
    sums : UserSums
        The user's number is its place in the batch.
    """

    window: Window
    names: pa.Array
    words: Words
    sums: UserSums

    def __len__(self) -> int:
        return len(self.words)

    @property
    def n_samples(self) -> int:
        """How many samples were summed up."""
        return int(self.sums.count.sum())

    def take(self, which: Ints | Bools) -> UserBatch:
        """Select users."""
        places = np.flatnonzero(which) if which.dtype == np.bool_ else which
        sums = self.sums.take(places)
        return UserBatch(
            window=self.window,
            names=self.names.take(pa.array(places)),
            words=self.words[places],
            sums=UserSums(**{**sums.columns(), "user": np.arange(len(places))}),
        )

    def by_shard(self, shards: int) -> Iterator[tuple[int, UserBatch]]:
        """Split users by hash, those of a shard in the order of their hashes: views of one copy."""
        shard = (self.words[:, 1] % np.uint64(shards)).astype(np.int64)
        order = np.lexsort((self.words[:, 0], shard))
        edges = np.searchsorted(shard[order], np.arange(shards + 1)).tolist()
        whole = self.take(order)
        columns = whole.sums.columns()

        for number, (first, behind) in enumerate(pairwise(edges)):
            if first < behind:
                mine = {name: column[first:behind] for name, column in columns.items()}
                yield (
                    number,
                    UserBatch(
                        window=self.window,
                        names=whole.names.slice(first, behind - first),
                        words=whole.words[first:behind],
                        sums=UserSums(**{**mine, "user": np.arange(behind - first)}),
                    ),
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UserSamples(ForRound):
    """Private: samples of some users within one window; they have ids, by which repeats are told.

    Attributes
    ----------
    window : Window
        Microseconds.
    names : pyarrow array of strings (m,)
        The users.
    words : uint64 array (m, 2)
        Hash of each name (`meanstream.operators.noise.keyed.keyed_owner_words`).
    user : int64 array (n,)
        Whose sample it is: place in `names`.
    value : float array (n,) or (n, v)
        In its own unit.
    time : float array (n,)
        Event time, seconds since the epoch.
    key : uint64 array (n,)
        Hash of each sample's id.
    position : int64 array (n,)
        Where the sample stood in its source: the order of samples that agree in id and time.
    """

    window: Window
    names: pa.Array
    words: Words
    user: Ints
    value: Floats
    time: Floats
    key: Words
    position: Ints

    @property
    def n_samples(self) -> int:
        """How many there are, with repeats."""
        return len(self.key)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportBatch:
    """Public: the reports of some users in one stage of a round; all that leaves the users' side.

    Attributes
    ----------
    window : Window
        Of the round, microseconds.
    stage : int
        From 0.
    users : int
        How many users the round is designed for.
    names : pyarrow array of strings (n,)
        The users.
    reports : int64 array (n, width)
        One row per user. There may be none: the stage is complete all the same.
    """

    window: Window
    stage: int
    users: int
    names: pa.Array
    reports: Reports

    def __len__(self) -> int:
        return len(self.reports)


def join_user_records(batches: Sequence[UserBatch]) -> UserBatch:
    """Join batches of one window.

    In any order, with the same result, the users in the order of their hashes.
    """
    first = batches[0]
    if len(batches) == 1 and np.all(
        first.words[1:, 0] > first.words[:-1, 0]
    ):  # as `summarize_by_shard` makes them
        return first

    words = np.concatenate([batch.words for batch in batches])
    known, code = record_user_words(words)
    sums = [batch.sums.columns() for batch in batches]
    columns = {name: np.concatenate([part[name] for part in sums]) for name in sums[0]}

    if len(known) == len(words):
        joined = UserSums(**{**columns, "user": code}).take(known)
    else:
        joined = join_summaries([UserSums(**{**columns, "user": code})])

    names = (
        pa.concat_arrays([batch.names for batch in batches]) if len(batches) > 1 else first.names
    )
    return UserBatch(
        window=first.window, names=names.take(pa.array(known)), words=words[known], sums=joined
    )


def record_user_words(words: Words) -> tuple[Ints, Ints]:
    """Find one place of each distinct hash, in the order of the hashes, and for each entry which of them it is.

    Both halves count: users whose names were made to agree in one half are still two.
    """
    order = np.argsort(words[:, 0], kind="stable")
    half = words[order, 0]
    same = half[1:] == half[:-1]
    if same.any():
        ordered = words[order]
        if np.any(same & (ordered[1:, 1] != ordered[:-1, 1])):  # never, unless someone wants it
            order = np.lexsort((words[:, 1], words[:, 0]))
            ordered = words[order]
            same = np.all(ordered[1:] == ordered[:-1], axis=1)

    begins = np.concatenate([np.ones(min(len(order), 1), np.bool_), ~same])
    code = np.empty(len(order), np.int64)
    code[order] = np.cumsum(begins) - 1
    return order[begins], code


register_records(window=Window, sums=UserSums)
register_elements(users=UserBatch, samples=UserSamples, reports=ReportBatch, round=ForRound)


def encoded_window(encoded: bytes) -> Window:
    """Read the window of a batch of users, and nothing else of it."""
    return Window(**packed_head(encoded, "users")["users"]["window"]["window"])
