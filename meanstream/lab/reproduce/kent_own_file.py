"""Kent, Berrett and Yu's Fig. 4 on a file of one's own: shares of a column's categories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.lab.reproduce.kent_curves import EPSILONS, SPREAD, TUNED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meanstream.lab.simulation.own_shares import OwnShares

MOST_CATEGORIES = 4
"""As the paper has: the most frequent ones, and all others together."""
SHARES_OF_LEAST = (1 / 3, 5 / 12, 1 / 2, 2 / 3, 5 / 6, 1.0)
"""The paper's 100 to 300 samples, relative to the greatest number."""
NOTE = (
    "On your own file; the paper's data cannot be had. The truth is the mean over users of their own shares. Bars: two "
    "standard errors. The full item level protects single samples only."
)


def own_file_panels(
    path: Path, user: str, value: str, *, samples: int, runs: int, seed: int
) -> tuple[list[dict[str, Any]], str]:
    """Measure all schemes, for each epsilon and number of samples.

    Give panels as of the other figures, and a note.
    """
    from meanstream.lab.simulation.own_shares import SCHEMES, own_share_errors

    data, names = read_own_shares(path, user, value, least=samples)
    grid = sorted({max(round(samples * share), 1) for share in SHARES_OF_LEAST})
    panels = []
    for epsilon in EPSILONS:
        ask = {"epsilon": epsilon, "constant": TUNED[epsilon], "runs": runs, "seed": seed}
        found = [own_share_errors(data, samples=one, **ask) for one in grid]  # type: ignore[arg-type]
        curves = [
            _curve(scheme, color, grid, found)
            for scheme, color in zip(SCHEMES, SPREAD, strict=False)
        ]

        panels.append(
            {
                "title": f"epsilon {epsilon:g}",
                "axis": "samples per user",
                "quantity": "mean squared error of all shares",
                "log": [False, True],
                "names": [],
                "curves": curves,
            }
        )

    return (
        panels,
        f"{len(data.count):,} users with {samples} samples or more; categories {', '.join(names)}. {NOTE}",
    )


def _curve(
    scheme: str, color: str, grid: Sequence[int], found: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    pairs = [one[scheme] for one in found]
    return {
        "label": scheme,
        "color": color,
        "line": "-",
        "x": list(grid),
        "y": [mean for mean, _ in pairs],
        "bar": [None if stderr is None else 2.0 * stderr for _, stderr in pairs],
        "reference": [],
    }


def read_own_shares(
    path: Path, user: str, value: str, *, least: int
) -> tuple[OwnShares, list[str]]:
    """Read two columns of a CSV file; rows without one of them are left out."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import csv

    from meanstream.lab.simulation.own_shares import OwnShares
    from meanstream.operators.validation import require

    require(path.is_file(), "file", "be a CSV file", str(path))
    kinds = {user: pa.string(), value: pa.string()}
    convert = csv.ConvertOptions(
        include_columns=[user, value], column_types=kinds, strings_can_be_null=True
    )

    try:
        table = csv.read_csv(path, convert_options=convert).drop_null()
    except (pa.ArrowException, UnicodeDecodeError):  # whose texts show values
        raise ValueError(
            f"file must be a CSV file with columns {user!r} and {value!r}, got {str(path)!r}"
        ) from None

    counted = sorted(
        pc.value_counts(table[value]).to_pylist(), key=lambda one: (-one["counts"], one["values"])
    )
    names = [str(one["values"]) for one in counted]
    require(len(names) >= 2, "value", "be a column of at least 2 categories", value)
    kept = names if len(names) <= MOST_CATEGORIES else names[: MOST_CATEGORIES - 1]
    number = pc.fill_null(pc.index_in(table[value], value_set=pa.array(kept)), len(kept)).to_numpy()
    who = pc.index_in(table[user], value_set=pc.unique(table[user])).to_numpy()
    data = OwnShares.of(who.astype(np.int64), number.astype(np.int64), least=least)

    return data, kept if len(names) <= MOST_CATEGORIES else [*kept, "all others"]
