"""A public table of the epsilon that each user accepts: users below the announced one stay out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Floats, Ints
from meanstream.streaming.rounds.public_table import (
    public_column,
    public_numbers,
    read_public_table,
    require_columns,
    require_whole_rows,
)

OPTION = "user_epsilons"


@dataclass(frozen=True, slots=True, eq=False)
class UserEpsilons:
    """Public: the largest epsilon of a window that each user accepts.

    Of several rows of a user the least counts. A user without a row accepts none.

    Attributes
    ----------
    of_user : dict of str to float
        By name.

    Examples
    --------
    >>> table = pa.table({"plane": ["a", "b", "c", "b"], "limit": [0.5, 2.0, 2.0, 1.0]})
    >>> epsilons = UserEpsilons.of(table, "limit", user="plane")
    >>> epsilons.accept(["a", "b", "c", "d"], 1.0)
    array([False,  True,  True, False])
    """

    of_user: Mapping[str, float]

    @classmethod
    def of(cls, table: pa.Table, column: str, *, user: str) -> Self:
        """Read a table; a row without its user, or without an epsilon above 0, is left out.

        Raises
        ------
        ValueError
            Naming the column and the rule.
        """
        names, epsilon = public_numbers(OPTION, table, column, user=user)
        whole = (
            np.isfinite(epsilon) & (epsilon > 0) & names.is_valid().to_numpy(zero_copy_only=False)
        )
        require_whole_rows(OPTION, column, whole)

        # The last of equal keys stays in a dict: the least epsilon of each user.
        named = names.filter(pa.array(whole)).to_pylist()
        accepted = epsilon[whole]
        falling = np.argsort(-accepted, kind="stable").tolist()
        return cls({named[row]: float(accepted[row]) for row in falling})

    def accept(self, names: Sequence[str], epsilon: float) -> Bools:
        """Tell which users take part in windows of this epsilon."""
        return np.array([self.of_user.get(name, 0.0) >= epsilon for name in names], np.bool_)


def read_user_epsilons(place: str, *, user: str) -> UserEpsilons:
    """Read `FILE.csv:COLUMN` or `FILE.parquet:COLUMN`."""
    table, column = read_public_table(OPTION, place, user=user)
    return UserEpsilons.of(table, column, user=user)


def accepted_levels(place: str) -> tuple[Floats, Ints]:
    """Read epsilons of a table with a row for each user, ascending, and how many accept each."""
    table, column = read_public_table(OPTION, place)
    require_columns(OPTION, table, [column])
    epsilon = public_column(OPTION, table, column)
    whole = np.isfinite(epsilon) & (epsilon > 0)
    require_whole_rows(OPTION, column, whole)

    levels, counts = np.unique(epsilon[whole], return_counts=True)
    return levels, np.cumsum(counts[::-1])[::-1]
