"""The joint posterior of a frame's groups, beside the rows of the result until they are in their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from meanstream.operators.collaboration.joint_means import JointMeans

_COLUMNS = ("joint stddev", "joint weight", "joint center variance", "joint is calibrated")


def joint_columns(joint: JointMeans | None) -> dict[str, pa.Array]:
    """Public: the joint posterior as columns, none where the population has intervals alone."""
    if joint is None:
        return {}

    center = np.full(len(joint), joint.center_variance)
    calibrated = np.full(len(joint), joint.calibrated)
    columns = (joint.stddev, joint.weight, center, calibrated)
    return {name: pa.array(column) for name, column in zip(_COLUMNS, columns, strict=True)}


def take_joint(table: pa.Table, level: float) -> tuple[pa.Table, JointMeans]:
    """Give a table without these columns, and the joint posterior of its rows.

    Where it has none, the posteriors are independent and have the intervals of the rows.

    Examples
    --------
    >>> rows = pa.table({"mean": [1.0], "lower": [-0.96], "upper": [2.96]})
    >>> take_joint(rows, 0.95)[1].stddev.round(3).tolist()
    [1.0]
    """
    value, lower, upper = (np.asarray(table[name]) for name in ("mean", "lower", "upper"))
    if _COLUMNS[0] not in table.column_names:
        return table, JointMeans.independent(value, lower, upper, level)

    stddev, weight, center, calibrated = (np.asarray(table[name]) for name in _COLUMNS)
    joint = JointMeans(
        value=value,
        stddev=stddev,
        weight=weight,
        center_variance=float(center[0]) if len(center) else 0.0,
        calibrated=bool(calibrated.all()),
    )

    return table.drop_columns(list(_COLUMNS)), joint
