"""Numbers that stand for a missing value, as -999, and are nulls from here on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.validation import require, valid_float
from meanstream.pipelines.frames.frame_columns import frame_columns


def missing_as_nulls(
    frame: Any, values: Sequence[str], missing: Sequence[float], others: Sequence[str]
) -> Any:
    """Give the needed columns of a frame with nulls in value columns where a number stands for a missing value.

    Without such numbers the frame itself.

    Examples
    --------
    >>> rows = pa.table({"g": ["a", "b"], "v": [1, -999]})
    >>> missing_as_nulls(rows, ["v"], [-999], ["g"])["v"].to_pylist()
    [1, None]
    """
    listed = isinstance(missing, Sequence) and not isinstance(missing, str)
    require(listed, "missing", "be a list of numbers, as [-999]", missing)
    numbers = [valid_float("missing", number) for number in missing]
    if not numbers:
        return frame

    table = frame_columns(frame, [*values, *others], option="value", needed=values)
    for name in values:
        column = table.column(name)
        kind = column.type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not (numeric or pa.types.is_decimal(kind)):
            continue  # true and false have no such number; other kinds are refused as values

        plain = column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
        stands_for_none = pa.chunked_array([pa.array(np.isin(plain, numbers))])
        cleared = pc.if_else(stands_for_none, pa.scalar(None, kind), column)
        table = table.set_column(table.column_names.index(name), name, cleared)

    return table
