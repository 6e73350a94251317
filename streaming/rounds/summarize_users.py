"""Users' samples of a window summed up, a batch at a time.

Batches may come in any order and be joined in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.rounds.round_grids import CategoryGrid, Grid
from meanstream.operators.rounds.round_records import Summaries
from meanstream.streaming.rounds.window_widths import (
    Window,
    Windows,
    merge_session_windows,
    windows_in_micros,
)

SUMS = ("user", "count", "total", "first_time", "first", "valid")
"""Columns of `UserSums`."""
_LATEST = np.iinfo(np.int64).max
_EXACT = 2**53
"""Whole numbers up to here are exact as floats, so that `bincount` adds them without rounding."""


class Entries(NamedTuple):
    """Private: samples with their windows; a sample of sliding windows has several entries.

    Attributes
    ----------
    user : int64 array (n,)
        Number of the user in the host's directory.
    value : float array (n,) or (n, v)
        In the value's unit; NaN where a record held no valid value: its user takes part without it.
    time : float array (n,)
        Seconds since the epoch.
    start, end : int64 array (n,)
        The window, microseconds, as `Windows.assign` gives it.
    repeats : bool array (n,), optional
        Which of them repeat an id: they say that their user takes part, and nothing else.
    """

    user: Ints
    value: Floats
    time: Floats
    start: Ints
    end: Ints
    repeats: Bools | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSums:
    """Private: what the users of a window have sent so far.

    One entry per user, in the order of their numbers.

    Attributes
    ----------
    user : int64 array (n,)
        Number of each user in the host's directory, ascending.
    count : int64 array (n,)
        Number of samples, whatever their values; 0 for a user who only repeated others.
    total : int64 array (n,) or (n, d), or unsigned array (n, categories)
        Their exact sum on the grid; of vectors, or of features, a row. Of categories, how many
        samples are of each, in as few bytes as the largest count of these users needs.
    first_time : int64 array (n,)
        Time of the earliest sample, microseconds.
    first : int64 array (n,) or (n, d)
        The earliest sample on the grid; of several at the same microsecond, the smallest,
        coordinate after coordinate. Of categories, how many come after the sample's: the smallest
        is then the smallest row.
    valid : int64 array (n,)
        Number of samples with a valid value, those of `total`; `count` by default.
    """

    user: Ints
    count: Ints
    total: Ints
    first_time: Ints
    first: Ints
    valid: Ints = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if cast("Ints | None", self.valid) is None:
            object.__setattr__(self, "valid", self.count)

    def __len__(self) -> int:
        return len(self.user)

    def take(self, which: Ints | Bools | slice) -> UserSums:
        """Select users."""
        return UserSums(**{name: column[which] for name, column in self.columns().items()})

    def columns(self) -> dict[str, Ints]:
        """Give plain columns, from which `UserSums(**columns)` makes the same again."""
        return {name: getattr(self, name) for name in SUMS}

    def summaries(self, words: Words, grid: Grid) -> Summaries:
        """Make the input of a round.

        **Privacy.** A sample without a valid value counts as the mean of the user's others. A user without any valid
        value takes part with the middle of the bounds, or, of categories, with counts that are all 0, for which the
        vote draws a category at random. So who takes part, and with how many samples, says nothing of validity.
        """
        total = self.total
        first = self.first

        # A category's first value was kept from the end, so that the least one wins.
        if isinstance(grid, CategoryGrid):
            first = grid.rows(grid.categories - 1 - first).view(np.uint8)

        count = np.maximum(self.count, 1)

        # Samples without a valid value count as the user's own mean of the others.
        if not isinstance(grid, CategoryGrid) and (self.valid < count).any():
            shape = (-1, *(1,) * (total.ndim - 1))
            empty = (self.valid == 0).reshape(shape)
            samples = count.reshape(shape)
            valid = np.maximum(self.valid, 1).reshape(shape)

            # total * samples / valid in whole numbers, without the product.
            scaled = total // valid * samples + total % valid * samples // valid
            total = np.where(empty, grid.middle * samples, scaled)
            first = np.where(empty, grid.middle, first)

        return Summaries(user=words, count=count, total=total, first=first, span=grid.span)


def summarize(
    user: Ints, value: Floats, time: Floats, grid: Grid, repeats: Bools | None = None
) -> UserSums:
    """Sum up samples of one window; NaN is a sample without a valid value.

    Examples
    --------
    >>> from meanstream.operators.noise.fixed_point import FixedPoint
    >>> sums = summarize(np.array([7, 2, 7]), np.array([1.0, 0.0, 0.25]), np.array([9.0, 5.0, 8.0]), FixedPoint(0, 1))
    >>> sums.user, sums.count, sums.total / 2**20, sums.first / 2**20
    (array([2, 7]), array([1, 2]), array([0.  , 1.25]), array([0.  , 0.25]))
    """
    micros = windows_in_micros(time)
    valid = valid_values(value)
    count = np.ones_like(user)

    # A sample in several windows counts once for its user.
    if repeats is not None:
        valid &= ~repeats
        count[repeats] = 0

    all_valid = bool(valid.all())
    entries: dict[str, Ints] = {"user": user, "count": count, "valid": valid.astype(np.int64)}

    # The first valid value counts, so a record without one comes after all others.
    if not all_valid:
        micros = np.where(valid, micros, _LATEST)

    if isinstance(grid, CategoryGrid):
        number = grid.numbers(value)
        after = grid.categories - 1 - number
        sums = join_summaries([UserSums(**entries, total=after, first_time=micros, first=after)])

        # Shares of the categories are counted among the valid samples only.
        code = np.searchsorted(sums.user, user[valid])
        return replace(sums, total=_category_counts(code, number[valid], sums.count, grid))

    # A sample without a value adds nothing to the sum; its user takes part all the same.
    if all_valid:
        points = grid.encode(value)
    else:
        points = grid.encode(np.where(np.isnan(value), 0.0, value))
        points[~valid] = 0

    return join_summaries([UserSums(**entries, total=points, first_time=micros, first=points)])


def valid_values(value: Floats) -> Bools:
    """Private: which samples hold a valid value; of vectors, one in each coordinate."""
    missing = np.isnan(value)
    return np.asarray(~(missing.any(axis=1) if missing.ndim == 2 else missing))


def summarize_windows(
    windows: Windows, user: Ints, value: Floats, time: Floats, grid: Grid
) -> dict[Window, UserSums]:
    """Sum up samples per window, all windows in one pass.

    Sessions are those within these samples.
    """
    assigned = windows.assign(time)
    return summarize_entries(
        windows,
        Entries(
            user[assigned.sample],
            value[assigned.sample],
            time[assigned.sample],
            assigned.start,
            assigned.end,
        ),
        grid,
    )


def summarize_entries(windows: Windows, entries: Entries, grid: Grid) -> dict[Window, UserSums]:
    """Sum up what stands with its window, all windows in one pass, in the order of time."""
    if not len(entries.user):
        return {}
    number, distinct = summarize_numbered_windows(windows, entries.start, entries.end)
    n_users = int(entries.user.max()) + 1

    # User and window are one number, so that one pass sums up all windows.
    key = number * n_users + entries.user
    sums = summarize(key, entries.value, entries.time, grid, entries.repeats)

    # Users of a window stand together, in the order of windows.
    edges = np.searchsorted(sums.user, n_users * np.arange(len(distinct) + 1)).tolist()
    parts = {}

    for number_of_window, window in enumerate(distinct):
        window_sums = sums.take(slice(edges[number_of_window], edges[number_of_window + 1]))
        parts[window] = UserSums(
            **{**window_sums.columns(), "user": window_sums.user - number_of_window * n_users}
        )

    return parts


def summarize_numbered_windows(
    windows: Windows, start: Ints, end: Ints
) -> tuple[Ints, list[Window]]:
    """Give each window the number of the distinct one it is, in the order of time.

    Sessions that overlap are one.
    """
    if windows.kind == "session":
        return merge_session_windows(start, end)
    starts, first, number = np.unique(start, return_index=True, return_inverse=True)
    return number.astype(np.int64), [
        Window(*ends) for ends in zip(starts.tolist(), end[first].tolist(), strict=True)
    ]


def join_summaries(parts: Sequence[UserSums]) -> UserSums:
    """Join sums, of the same or of other users: commutative and associative, to the last bit.

    Entries may stand in any order, and a user may have several.
    """
    columns = [sums.columns() for sums in parts] or [_nothing()]

    def whole(
        name: str,
    ) -> Ints:  # one column at a time: all of them together would be all sums once more
        if len(columns) > 1:
            return np.concatenate([c[name] for c in columns])
        return columns[0][name]

    users, code = _coded(whole("user"))
    first_time = whole("first_time")

    # The first value of a user is that of the least time, and the least value of that time.
    earliest = np.full(len(users), _LATEST, np.int64)
    np.minimum.at(earliest, code, first_time)
    earliest_entries = np.flatnonzero(first_time == earliest[code])
    del first_time
    count = _added(code, whole("count"), len(users))
    total = whole("total")

    return UserSums(
        user=users,
        count=count,
        total=_added_narrow(code, total, count)
        if total.dtype.kind == "u"
        else _added(code, total, len(users)),
        first_time=earliest,
        first=_least(code[earliest_entries], whole("first")[earliest_entries], len(users)),
        valid=_added(code, whole("valid"), len(users)),
    )


def _least(code: Ints, rows: Ints, n: int) -> Ints:
    """Give the smallest entry of each code.

    Of vectors, the one that comes first coordinate after coordinate.
    """
    if rows.ndim == 1:
        least = np.full(n, _LATEST, np.int64)
        np.minimum.at(least, code, rows)
        return least

    order = np.lexsort((*rows.T[::-1], code))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = np.diff(code[order]) > 0
    return rows[order[begins]]


def _coded(user: Ints) -> tuple[Ints, Ints]:
    """Give the distinct users in order, and which of them each entry is."""
    if not len(user):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    size = int(user.max()) + 1

    # Few users with large numbers are sorted; many are looked up in a table.
    if size > 4 * len(user) + 1024:  # a table would be mostly empty
        users, code = np.unique(user, return_inverse=True)
        return users, code.astype(np.int64)

    has_entry = np.zeros(size, np.bool_)
    has_entry[user] = True
    users = np.flatnonzero(has_entry)
    code_of = np.cumsum(has_entry) - 1

    return users, code_of[user]


def _added(code: Ints, numbers: Ints, n: int) -> Ints:
    """Add up whole numbers by code, exactly; those of vectors column by column."""
    if numbers.ndim == 2:
        columns = [_added(code, column, n) for column in numbers.T]

        if columns:
            return np.stack(columns, axis=1)
        return np.zeros((n, 0), np.int64)

    # Floats of 64 bits add whole numbers exactly up to 2**53.
    if not len(numbers) or len(numbers) * int(numbers.max()) < _EXACT:
        return np.bincount(code, weights=numbers, minlength=n).astype(np.int64)
    sums = np.zeros(n, np.int64)
    np.add.at(sums, code, numbers)

    return sums


def _category_counts(code: Ints, number: Ints, count: Ints, grid: CategoryGrid) -> Ints:
    """Count how many samples of each user are of each category.

    `count` says how many each user has.
    """
    total = np.zeros((len(count), grid.categories), _narrow(count))
    cells, times = np.unique(code * grid.categories + number, return_counts=True)
    total.reshape(-1)[cells] = times
    return total


def _added_narrow(code: Ints, rows: Ints, count: Ints) -> Ints:
    """Add up rows of small whole numbers by code, in as few bytes as the largest sum can need."""
    total = np.zeros((len(count), rows.shape[1]), _narrow(count))
    if len(count) == len(rows):
        total[code] = rows
    elif len(rows):
        order = np.argsort(code, kind="stable")
        begins = np.r_[0, np.flatnonzero(np.diff(code[order])) + 1]
        np.add.reduceat(rows[order], begins, axis=0, dtype=total.dtype, out=total)

    return total


def _narrow(count: Ints) -> np.dtype[Any]:
    """Give the smallest unsigned type that holds each user's number of samples.

    No category has more of them.
    """
    return np.min_scalar_type(int(count.max(initial=0)))


def _nothing() -> dict[str, Ints]:
    return dict.fromkeys(SUMS, np.zeros(0, np.int64))
