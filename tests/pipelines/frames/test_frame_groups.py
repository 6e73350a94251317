"""Groups of a frame's rows: numbered as they are first met, whatever type and chunks the columns
have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.pipelines.frames.frame_columns import frame_samples
from meanstream.pipelines.frames.groups import rows_by_key

ROWS = [("b", 2), ("a", 2), ("b", 1), ("c", 2), ("a", 2), ("b", 2), ("c", 3)]
TWICE = pa.DictionaryArray.from_arrays(
    pa.array([1, 0, 3, 2, 4, 1, 2], pa.int8()), ["a", "b", "c", "b", "a", "unused"]
)
"""The same names as those of `ROWS`, where the list names two of them twice."""


def in_chunks(column: pa.Array, at: int = 3) -> pa.ChunkedArray:
    return pa.chunked_array([column.slice(0, at), column.slice(0, 0), column.slice(at)])


def names(kind: str) -> pa.ChunkedArray:
    plain = pa.array([name for name, _ in ROWS])
    made: dict[str, Any] = {
        "text": plain,
        "large": plain.cast(pa.large_string()),
        "view": plain.cast(pa.string_view()),
        "categories": plain.dictionary_encode(),
        "twice": TWICE,
    }
    return in_chunks(made[kind])


@pytest.mark.parametrize("kind", ["text", "large", "view", "categories", "twice"])
@pytest.mark.parametrize("several", [False, True])
def test_groups_are_numbered_as_they_are_first_met(kind: str, several: bool) -> None:
    number = pa.array([number for _, number in ROWS])
    table = pa.table({"name": names(kind), "number": in_chunks(number, 5)})
    codes, keys = rows_by_key(table, ["name", "number"] if several else ["name"])
    rows = ROWS if several else [(name,) for name, _ in ROWS]
    first = [*dict.fromkeys(rows)]
    assert [tuple(row.values()) for row in keys.to_pylist()] == first
    assert codes.tolist() == [first.index(row) for row in rows]


def test_categories_of_several_lists_are_one_list() -> None:
    column = pa.chunked_array(
        [pa.array(["x", "y"]).dictionary_encode(), pa.array(["y", "z"]).dictionary_encode()]
    )
    codes, keys = rows_by_key(pa.table({"name": column}), ["name"])
    assert (codes.tolist(), keys.column(0).to_pylist()) == ([0, 1, 1, 2], ["x", "y", "z"])


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=40
    )
)
def test_a_person_is_in_as_many_groups_as_a_plain_count_says(
    rows: list[tuple[int, int, int]],
) -> None:
    person, group, time = np.array(rows, np.int64).T
    table = pa.table({"who": person, "g": group, "t": time, "v": np.zeros(len(rows))})
    samples = frame_samples(table, by="g", value="v", time="t", person="who")
    most = max(len({g for p, g, _ in rows if p == one}) for one, _, _ in rows)
    assert samples.groups_of_a_person() == most
    hashes = samples.person_hashes()
    assert hashes is not None
    ordered = [person[i] for i in np.argsort(time, kind="stable")]
    assert len({*zip(hashes.tolist(), ordered, strict=True)}) == len({*ordered})
