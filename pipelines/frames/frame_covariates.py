"""Public attributes of the groups of a frame.

From a second frame, or from columns that are constant within a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.collaboration.covariates.covariate_design import (
    AgentCovariates,
    SampleCount,
)
from meanstream.operators.collaboration.covariates.learned_effects import LIKELY
from meanstream.operators.validation import closest_valid, printable
from meanstream.pipelines.frames.frame_columns import FrameSamples, key_columns
from meanstream.pipelines.frames.frame_reader import frame_column_names, frame_columns
from meanstream.pipelines.frames.groups import key_names, rows_by_key
from meanstream.streaming.agents.declared_covariates import covariates_of_columns, declared_column


def frame_covariates(
    frame: Any, covariates: Any, samples: FrameSamples, *, by: str | Sequence[str]
) -> AgentCovariates:
    """Read declared attributes of the groups."""
    keys = key_columns(by)
    if isinstance(covariates, str) or (
        isinstance(covariates, Sequence) and all(isinstance(name, str) for name in covariates)
    ):
        names = [covariates] if isinstance(covariates, str) else list(covariates)
        return _of_own_columns(frame, names, samples, keys)

    known = frame_column_names(covariates, option="covariates")
    missing = next((name for name in keys if name not in known), None)
    if missing is not None:
        raise ValueError(
            f"covariates must have the columns of by, got none named {missing!r}{closest_valid(missing, known)}"
        )

    table = frame_columns(covariates, known, option="covariates", needed=keys)
    rows = _group_names(table.select(keys))
    several = len(rows) - len(set(rows))
    if several:
        raise ValueError(
            f"covariates must have one row per group, got {several:,} rows more than groups"
        )

    declared = covariates_of_columns(
        rows, {name: table.column(name) for name in table.column_names if name not in keys}
    )
    if samples.names and not declared.known(samples.names):
        columns = ", ".join(map(repr, keys))
        raise ValueError(
            f"covariates must name groups of the frame in {columns}, got none of its groups"
        )

    return declared


def _of_own_columns(
    frame: Any, names: list[str], samples: FrameSamples, keys: list[str]
) -> AgentCovariates:
    """Take columns of the frame that are constant within each group."""
    if set(names) & set(keys):
        raise ValueError(
            f"covariates must be other columns than by, got {sorted(set(names) & set(keys))[0]!r}"
        )

    table = frame_columns(frame, [*keys, *names], option="covariates", needed=names)
    group = {name: number for number, name in enumerate(samples.names)}
    codes, groups = rows_by_key(table.select(keys), keys, "by")
    number = np.array([group.get(name, -1) for name in key_names(groups)], np.int64)[codes]
    table, of = (
        table.filter(pa.array(number >= 0)),
        number[number >= 0],
    )  # groups of dropped rows have no answer
    first_row = np.full(len(samples.names), -1, np.int64)
    first_row[of[::-1]] = np.arange(len(of))[::-1]
    columns = {}

    for name in names:
        codes = declared_column(name, table.column(name)).dictionary_encode().indices
        value = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        varies = np.unique(of[value != value[first_row][of]])
        if len(varies):
            raise ValueError(
                f"covariates must be constant within a group, got {len(varies):,} groups in which column "
                f"{printable(name)!r} varies"
            )

        columns[name] = pc.take(table.column(name), pa.array(first_row))

    return covariates_of_columns(samples.names, columns)


def _group_names(keys: pa.Table) -> list[str]:
    """Name the group of each row by its keys, as `frame_samples` names groups."""
    codes, groups = rows_by_key(keys, list(keys.column_names), "covariates")
    names = key_names(groups)
    return [names[code] for code in codes.tolist()]


def covariates_said(learned: Mapping[str, Any]) -> str:
    """Say in one sentence what was learned of declared attributes.

    Examples
    --------
    >>> covariates_said({"explained": 0.41, "attributes": [{"name": "carrier", "probability": 0.98}]})
    'Declared public covariates explain 41 % of the spread of the means; likely effects: carrier (98 %)'
    """
    likely = [
        attribute
        for attribute in learned["attributes"]
        if attribute["probability"] >= LIKELY and attribute["name"] != SampleCount.name
    ]
    named = ", ".join(
        f"{printable(attribute['name'])} ({attribute['probability']:.0%})".replace("%", " %")
        for attribute in likely
    )
    share = f"{learned['explained']:.0%}".replace("%", " %")

    return f"Declared public covariates explain {share} of the spread of the means; likely effects: {named or 'none'}"
