"""What follows from a mean and the public number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meanstream.operators.validation import require

STATISTICS = ("mean", "sum", "variance")
VARIANCE = ("variance", "variance_lower", "variance_upper")


def valid_statistics(statistics: Sequence[str]) -> tuple[str, ...]:
    """Give the columns that further statistics have.

    Examples
    --------
    >>> valid_statistics(["mean", "sum"])
    ('sum', 'sum_lower', 'sum_upper')
    """
    names = [statistics] if isinstance(statistics, str) else list(statistics)
    unknown = next((name for name in names if name not in STATISTICS), None)
    require(unknown is None, "statistics", f"be of {', '.join(STATISTICS)}", unknown)

    if "sum" in names:
        return ("sum", "sum_lower", "sum_upper")
    return ()


def with_sums(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Add the sums of the clipped values of all rows, with their intervals: means times numbers of rows."""
    for name, mean in zip(columns, ("mean", "lower", "upper"), strict=bool(columns)):
        total = np.asarray(table["rows"]) * np.asarray(table[mean])
        table = table.append_column(name, pa.array(total, pa.float64()))

    return table
