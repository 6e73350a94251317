"""A public table of predictions: one number per user, or per user and time."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Floats, Ints, Words
from meanstream.operators.rounds.window_predictions import WindowPredictions
from meanstream.streaming.events.times import TimeParser
from meanstream.streaming.rounds.public_table import (
    public_numbers,
    read_public_table,
    require_whole_rows,
)
from meanstream.streaming.rounds.window_widths import Window, Windows

_log = logging.getLogger("meanstream.rounds")


@dataclass(frozen=True, slots=True, eq=False)
class PredictionsTable:
    """Public: a forecast of users' means, on [-1, 1].

    Several rows of a user in one window count as their mean, and predictions beyond the bounds as
    the bounds.

    Attributes
    ----------
    words : uint64 array (u, 2)
        Hash of each user of the table, in their order.
    user, value : int64 array (n,), float array (n,)
        User and prediction of each row, in the order of `start`.
    start : int64 array (n,), optional
        Start of each row's window, microseconds, ascending; without it a row holds for all windows.

    Examples
    --------
    >>> days = ["2013-01-01", "2013-01-01", "2013-01-09"]
    >>> table = pa.table({"plane": ["a", "b", "b"], "day": days, "delay": [2, 6, 9]})
    >>> of = {"user": "plane", "time": "day", "windows": Windows.parse("7d"), "ends": (0, 10)}
    >>> predictions = PredictionsTable.of(table, "delay", **of)
    >>> users = keyed_owner_words(["a", "b", "c"])
    >>> week = Window(15_701 * 86_400_000_000, 15_708 * 86_400_000_000)
    >>> predictions.of_users(week, users)
    array([-0.6,  0.2,  nan])
    """

    words: Words
    user: Ints
    value: Floats
    start: Ints | None

    @classmethod
    def of(
        cls,
        table: pa.Table,
        column: str,
        *,
        user: str,
        time: str,
        windows: Windows,
        ends: tuple[float, float],
    ) -> Self:
        """Read a table; a row without its user, time or prediction is left out.

        Raises
        ------
        ValueError
            Naming the column and the rule.
        """
        names, value, seconds = _rows(table, column, user=user, time=time)

        # Names are hashed once each.
        encoded = names.dictionary_encode()
        words = keyed_owner_words(encoded.dictionary.to_pylist())
        code = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        lower, upper = ends
        place = np.clip(2.0 * (value - lower) / (upper - lower) - 1.0, -1.0, 1.0)
        if seconds is None:
            return cls(words, code, place, None)

        start = windows.assign(seconds).start
        order = np.argsort(start, kind="stable")
        return cls(words, code[order], place[order], start[order])

    def of_users(self, window: Window, users: Words) -> Floats:
        """Give each user's prediction in a window, on [-1, 1]; NaN where there is none."""
        rows = slice(None)
        if self.start is not None:
            begin, end = np.searchsorted(self.start, [window.start, window.start + 1]).tolist()
            rows = slice(begin, end)

        n_rows = np.bincount(self.user[rows], minlength=len(self.words))
        total = np.bincount(self.user[rows], self.value[rows], minlength=len(self.words))
        mean = np.full(len(self.words), np.nan)
        np.divide(total, n_rows, out=mean, where=n_rows > 0)

        # Half of a hash finds a user: who shares it with another has a prediction of the other.
        order = np.argsort(self.words[:, 0], kind="stable")
        key = self.words[order, 0]
        place = np.minimum(np.searchsorted(key, users[:, 0]), len(key) - 1)
        same = key[place] == users[:, 0]

        return np.where(same, mean[order[place]], np.nan)

    def in_window(self, window: Window, users: Words) -> WindowPredictions:
        """Give what is predicted of the users who take part in a window."""
        predictions = WindowPredictions.of(users, self.of_users(window, users))
        if len(users) and not predictions.predicted:
            _log.warning(
                "no user of the window %s has a prediction: it is answered without", window.iso()[0]
            )

        return predictions


def read_predictions(
    place: str, *, user: str, time: str, windows: Windows, ends: tuple[float, float]
) -> PredictionsTable:
    """Read `FILE.csv:COLUMN` or `FILE.parquet:COLUMN`.

    Raises
    ------
    ValueError
        Naming the file or the column, and the rule.
    """
    table, column = read_public_table("prediction", place, user=user)
    return PredictionsTable.of(table, column, user=user, time=time, windows=windows, ends=ends)


def _rows(
    table: pa.Table, column: str, *, user: str, time: str
) -> tuple[pa.Array, Floats, Floats | None]:
    """Give user, prediction and time of each whole row; no times where the table has none."""
    names, value = public_numbers("prediction", table, column, user=user)
    whole = np.isfinite(value) & names.is_valid().to_numpy(zero_copy_only=False)
    seconds = None

    # A table without times says the same of each window.
    if time in table.column_names:
        seconds = TimeParser().parse(table.column(time).combine_chunks())
        whole &= np.isfinite(seconds)

    require_whole_rows("prediction", column, whole)
    return names.filter(pa.array(whole)), value[whole], None if seconds is None else seconds[whole]
