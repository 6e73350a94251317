"""Means of groups as other libraries release them: `python other_libraries.py LIBRARY EPSILON LOWER UPPER IN OUT`.

It runs in an environment of its own (`make anchors`), since the libraries need packages that ours
does not. IN has the columns `group` and `value`; OUT gets `group` and `mean`. Groups and their
sizes are public, as for ours, wherever a library can be told so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import polars as pl


def opendp_means(rows: pl.DataFrame, epsilon: float, lower: float, upper: float) -> pl.DataFrame:
    """Laplace noise on clipped sums; one row is replaced, and lengths of groups are public."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    sizes = rows.group_by("group").len()
    context = dp.Context.compositor(
        data=rows.lazy(),
        privacy_unit=dp.unit_of(changes=1),
        privacy_loss=dp.loss_of(epsilon=epsilon),
        split_evenly_over=1,
        margins=[
            dp.polars.Margin(
                by=["group"],
                max_length=int(sizes["len"].max()),
                max_groups=len(sizes),
                invariant="lengths",
            )
        ],
    )

    value = pl.col("value").fill_null(0.0).fill_nan(0.0)
    query = context.query().group_by("group").agg(value.dp.mean((lower, upper)))
    return query.release().collect().rename({"value": "mean"}).select("group", "mean")


def pipelinedp_means(
    rows: pl.DataFrame, epsilon: float, lower: float, upper: float
) -> pl.DataFrame:
    """Laplace noise on sums and counts; one row is added or removed, and groups are public."""
    import pipeline_dp

    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=1e-6)
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )

    asked = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=lower,
        max_value=upper,
    )
    records = list(zip(range(len(rows)), rows["group"], rows["value"], strict=True))

    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    groups = rows["group"].unique().to_list()
    answers = engine.aggregate(records, asked, extractors, public_partitions=groups)
    accountant.compute_budgets()

    means = dict(answers)
    return pl.DataFrame({"group": list(means), "mean": [answer.mean for answer in means.values()]})


def diffprivlib_means(
    rows: pl.DataFrame, epsilon: float, lower: float, upper: float
) -> pl.DataFrame:
    """Laplace noise on the mean of each group; one row is replaced, and lengths are public."""
    import diffprivlib

    groups = rows.group_by("group").agg(pl.col("value"))
    means = [
        float(diffprivlib.tools.mean(np.array(values), epsilon=epsilon, bounds=(lower, upper)))
        for values in groups["value"]
    ]

    return pl.DataFrame({"group": groups["group"], "mean": means})


LIBRARIES: dict[str, Callable[[pl.DataFrame, float, float, float], pl.DataFrame]] = {
    "OpenDP": opendp_means,
    "PipelineDP": pipelinedp_means,
    "diffprivlib": diffprivlib_means,
}

if __name__ == "__main__":
    library, epsilon, lower, upper, source, target = sys.argv[1:]
    frame = pl.read_parquet(source).with_columns(pl.col("value").cast(pl.Float64))
    LIBRARIES[library](frame, float(epsilon), float(lower), float(upper)).write_parquet(target)
