"""Appendix C of Cummings et al..

Truncated weights against halving at the median, where few users have many samples.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from meanstream.lab.reproduce.kent_curves import COLORS
from meanstream.pipelines.options.base import print_options_json

USERS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
NOTE = (
    "n users with one sample each, but for sqrt(n) of them with n samples; users are alike, values 0 and 1, mean 0.5. "
    "Variances are exact, with windows of Bernstein's inequality. Halving at the median is what all prior work does."
)


def compare_cummings(out: Path, *, as_json: bool) -> None:
    """Draw both variances against the number of users, and print them with their slopes."""
    from meanstream.lab.reproduce.kent_plots import draw_kent
    from meanstream.pipelines.commands.plots import plot_path

    picture = plot_path(out, "cummings-appendix-c.png")
    result = compared_cummings()
    draw_kent(result, picture)
    result["png"] = str(picture)

    if as_json:
        print_options_json(result)
    else:
        sys.stdout.write(_as_text(result))


def compared_cummings() -> dict[str, Any]:
    """Compute the variance of both, and the slope over the last decade of users."""
    from meanstream.lab.papers.bounds.cummings_theorems import (
        CummingsProblem,
        cummings_halved_variance,
        cummings_ideal_variance,
    )
    from meanstream.operators.rounds.user_sizes import SizeDistribution

    curves = []
    for epsilon in (0.5, 4.0):
        asked = [
            CummingsProblem(
                sizes=SizeDistribution.parse(f"two:1,{n},{n**-0.5!r}"), users=n, epsilon=epsilon
            )
            for n in USERS
        ]

        for label, line, variance in (
            ("halving at the median", "--", cummings_halved_variance),
            ("truncated weights", "-", cummings_ideal_variance),
        ):
            y = [variance(one) for one in asked]
            slope = math.log(y[-1] / y[-3]) / math.log(USERS[-1] / USERS[-3])
            curves.append(
                {
                    "label": f"{label}, epsilon {epsilon:g}",
                    "color": COLORS[epsilon],
                    "line": line,
                    "x": list(USERS),
                    "y": y,
                    "bar": [None] * len(y),
                    "reference": [],
                    "slope": slope,
                }
            )

    panel: dict[str, Any] = {
        "title": "sqrt(n) users with n samples",
        "axis": "users n",
        "quantity": "variance on [0, 1]",
    }
    panel |= {"log": [True, True], "names": [], "curves": curves}

    return {"figure": "App. C", "authors": "Cummings et al.", "panels": [panel], "note": NOTE}


def _as_text(result: dict[str, Any]) -> str:
    """Lay out variances and slopes."""
    lines = [f"{'users':<42}" + "".join(f"{n:>9.0e}" for n in USERS[::2]) + "   slope"]
    for curve in result["panels"][0]["curves"]:
        cells = "".join(f"{y:>9.1e}" for y in curve["y"][::2])
        lines.append(f"{curve['label']:<42}{cells}{curve['slope']:>8.2f}")

    return "\n".join([*lines, "", result["note"], f"picture: {result['png']}"]) + "\n"
