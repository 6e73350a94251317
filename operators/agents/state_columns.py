"""Columns of the agents' state, declared: type, privacy, and what forgetting leaves of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np

from meanstream.operators.counters.base import Counter
from meanstream.operators.validation import require

Columns = dict[str, np.ndarray]
"""The state of many agents by the names of its columns, one row each."""


class Public:
    """Mark of what follows from who sent samples, when, and from charged releases."""


class Private:
    """Mark of what a sample's value, or a draw of noise, can change beyond the releases."""


PUBLIC: Final = Public()
PRIVATE: Final = Private()
Privacy = TypeVar("Privacy", Public, Private)


@dataclass(frozen=True, slots=True)
class Column(Generic[Privacy]):
    """One column of the agents' state.

    Parameters
    ----------
    name : str
        Its name in snapshots.
    dtype : type
        Type of an entry.
    shape : tuple of int
        Shape of an agent's entry.
    privacy : Public or Private
        `PUBLIC` only if two streams that differ in values alone, and release the same, have the
        same entries (`tests/privacy/test_state_columns.py`).
    of : str
        The part of the state that it belongs to.
    start : float
        Entry of an agent that has sent nothing.
    kept : bool
        Whether it stays when its agent is forgotten: it says what the newest release said, or that
        no release follows.
    by_release : bool
        Whether there is one number for each release, of as many as some agent has made; `shape` has
        the horizon.
    """

    name: str
    dtype: type[np.generic]
    shape: tuple[int, ...] = ()
    _: KW_ONLY
    privacy: Privacy
    of: str
    start: float = 0
    kept: bool = False
    by_release: bool = False

    def __post_init__(self) -> None:
        public = isinstance(self.privacy, Public)
        require(public or not self.kept, f"column {self.name}", "be public to be kept", "PRIVATE")

    def empty(self, n: int, releases: int | None = None) -> np.ndarray:
        """Entries of `n` agents that have sent nothing, with room for so many releases of each."""
        size: tuple[int, ...] = (n, *self.shape)
        if self.by_release and releases is not None:
            size = (n, releases)

        # Zeros take no memory before they are written to.
        if self.start == 0:
            return np.zeros(size, self.dtype)
        return np.full(size, self.start, self.dtype)

    def check(self, values: np.ndarray, n: int) -> None:
        """Refuse entries that are not of this column, or not of `n` agents."""
        size = (n, *self.shape)
        if self.by_release and values.ndim == 2:
            size = (n, min(values.shape[1], *self.shape))

        # Bytes hold whole numbers in the least type that is wide enough.
        fits = values.shape == size and np.can_cast(values.dtype, self.dtype, "safe")
        rule = f"be {n} of {np.dtype(self.dtype)} {self.shape}"
        require(fits, f"snapshot column {self.name}", rule, f"{values.dtype} {values.shape}")


Table = tuple[Column[Public] | Column[Private], ...]
"""The columns of a part of the state, or of all of it."""


def declared_columns(
    names: Iterable[str],
    dtype: type[np.generic],
    shape: tuple[int, ...] = (),
    *,
    privacy: Privacy,
    of: str,
) -> tuple[Column[Privacy], ...]:
    """Several columns alike but for their names."""
    return tuple(Column(name, dtype, shape, privacy=privacy, of=of) for name in names)


def columns_of_counter(counter: Counter) -> Table:
    """The state of a counter: draws are private, what follows from times of releases is public."""
    table: Table = ()
    for name, column in counter.init(0).items():
        privacy: Any = PUBLIC if name in counter.public else PRIVATE
        by_release = name in counter.by_release
        size = column.shape[1:]
        table += (
            Column(
                name, column.dtype.type, size, privacy=privacy, of="noise", by_release=by_release
            ),
        )

    return table


def prefixed_columns(prefix: str, table: Table) -> Table:
    """The same columns under longer names."""
    return tuple(replace(column, name=prefix + column.name) for column in table)


def chunks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most a size that cover `n` rows: what is computed at once stays in a cache.

    Examples
    --------
    >>> list(chunks(5, 3))
    [slice(0, 3, None), slice(3, 6, None)]
    """
    return (slice(start, start + size) for start in range(0, n, size))


def columns_under(prefix: str, rows: Columns) -> Columns:
    """The columns whose names begin with a prefix, under the rest of their names."""
    return {
        name.removeprefix(prefix): column
        for name, column in rows.items()
        if name.startswith(prefix)
    }


def empty_columns(table: Table, n: int, releases: int | None = None) -> Columns:
    """State of `n` agents that have sent nothing."""
    return {column.name: column.empty(n, releases) for column in table}
