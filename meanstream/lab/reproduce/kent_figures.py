"""What the figures of Kent, Berrett and Yu show, and reference values to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from meanstream.lab.reproduce.kent_curves import (
    COLORS,
    EPSILONS,
    SPREAD,
    TUNED,
    Curve,
    Panel,
    Point,
    kent_curves_ball_error,
    kent_curves_item_error,
    kent_curves_sparse,
    kent_curves_univariate,
)
from meanstream.lab.reproduce.kent_mixture_figures import (
    kent_mixture_figure_11,
    kent_mixture_figure_12,
)
from meanstream.lab.reproduce.kent_regime_figures import (
    kent_regime_figure_1,
    kent_regime_figure_5,
    kent_regime_figure_6,
)


def _figure_2() -> list[Panel]:
    """Univariate schemes against the full item level, and vectors in both settings."""
    users = 500
    sizes = tuple(float(round(10 ** (2 + i / 3))) for i in range(7))
    references = {
        0.5: {100.0: 48.0, 1000.0: 292.0, 10000.0: 1.1e4},
        1.0: {100.0: 52.0, 1000.0: 60.0, 10000.0: 75.0},
        2.0: {100.0: 15.0, 1000.0: 17.0, 10000.0: 21.0},
        4.0: {100.0: 15.0, 1000.0: 14.0, 10000.0: 18.0},
    }

    curves = [
        Curve(
            label=f"user level, epsilon {epsilon:g}",
            color=COLORS[epsilon],
            x=sizes,
            points=tuple(
                kent_curves_univariate(epsilon, users, size, "shifted_uniform") for size in sizes
            ),
            divide=tuple(kent_curves_item_error(epsilon, users, size) for size in sizes),
            reference=references[epsilon],
        )
        for epsilon in EPSILONS
    ]

    item = [kent_curves_item_error(1.0, users, size) for size in sizes]
    semi = tuple((1 / 12 / t + 8.0) / users / one for t, one in zip(sizes, item, strict=True))
    split = tuple(
        (1 / 12 + 8.0 * t**2) / users / t / one for t, one in zip(sizes, item, strict=True)
    )

    near = {100.0: 99.0, 1000.0: 990.0, 10000.0: 9900.0}
    far = {100.0: 1e4, 1000.0: 1e6, 10000.0: 1e8}
    curves.append(
        Curve(
            label="semi user level, epsilon 1 (exact)",
            color="0.4",
            line="--",
            x=sizes,
            y=semi,
            reference=near,
        )
    )

    curves.append(
        Curve(
            label="split user, epsilon 1 (exact)",
            color="0.4",
            line=":",
            x=sizes,
            y=split,
            reference=far,
        )
    )
    first = Panel(
        title="univariate, 500 users",
        axis="samples per user",
        quantity="ratio to full item level",
        curves=tuple(curves),
    )

    return [first, *[_vectors(d) for d in (8, 16, 32)]]


_REPORTED: dict[tuple[str, int], dict[float, float]] = {
    ("kent.linf", 8): {2.0: 0.0012},
    ("kent.l2", 8): {2.0: 0.0027},
    ("kent.linf", 32): {0.0: 0.027, 2.0: 0.0177, 3.0: 5.0e-3},
    ("kent.l2", 32): {2.0: 0.0109, 3.0: 3.3e-3},
    ("semi", 32): {3.0: 0.0133},
    ("full", 32): {3.0: 3.3e-5},
}
"""Measured by an own implementation, by curve and number of coordinates, at some of the places."""


def _vectors(dimension: int) -> Panel:
    """Both settings at two epsilons."""
    cells = [(data, epsilon) for data in ("corner:0.9", "sphere") for epsilon in (2.0, 4.0)]
    places = tuple(float(i) for i in range(len(cells)))

    def points(estimator: str) -> tuple[Point, ...]:
        return tuple(
            {
                "estimator": estimator,
                "epsilon": epsilon,
                "users": 4000,
                "sizes": "point:400",
                "data": data,
                "dimension": dimension,
                "options": {"votes": "one_hot", "constant": TUNED[epsilon], "dimension": dimension},
            }
            for data, epsilon in cells
        )

    norms = [0.64 if data == "corner:0.9" else 0.0 for data, _ in cells]
    exact = [
        kent_curves_ball_error(dimension, epsilon, 4000, norm2)
        for (_, epsilon), norm2 in zip(cells, norms, strict=True)
    ]

    full = tuple(y / 400 for y in exact)
    shown = (
        ("user level, l_inf", "tab:blue", points("kent.linf"), (), "kent.linf"),
        ("user level, l2", "tab:red", points("kent.l2"), (), "kent.l2"),
        ("semi user level (exact)", "0.4", (), tuple(exact), "semi"),
        ("full item level (exact)", "0.7", (), full, "full"),
    )

    curves = tuple(
        Curve(
            label=label,
            color=color,
            line="",
            x=places,
            points=p,
            y=y,
            reference=_REPORTED.get((key, dimension), {}),
        )
        for label, color, p, y, key in shown
    )

    names = tuple(
        f"{'1' if data == 'corner:0.9' else '2'}, eps {epsilon:g}" for data, epsilon in cells
    )
    title = f"d = {dimension}, 4000 users"

    return Panel(title=title, axis="setting, epsilon", names=names, log_x=False, curves=curves)


def _figure_3() -> list[Panel]:
    """Sparse vectors where the item level cannot estimate; the paper gives neither s nor p."""
    import numpy as np

    from meanstream.lab.simulation.item_level import item_level_sparse_error

    dimensions = (100.0, 300.0, 1000.0, 3000.0)
    curves = []
    for epsilon in EPSILONS:
        counts = [int((10 * d * math.log(d)) ** 0.5) for d in dimensions]
        points = tuple(
            kent_curves_sparse(epsilon, n, n, int(d), sparsity=4)
            for d, n in zip(dimensions, counts, strict=True)
        )
        item = tuple(
            item_level_sparse_error(int(d), epsilon, n**2, np.full(4, 0.5))
            for d, n in zip(dimensions, counts, strict=True)
        )

        label = f"epsilon {epsilon:g}"
        curves.append(
            Curve(label=f"user level, {label}", color=COLORS[epsilon], x=dimensions, points=points)
        )
        curves.append(
            Curve(
                label=f"item level, {label}", color=COLORS[epsilon], line="--", x=dimensions, y=item
            )
        )

    return [
        Panel(
            title="4-sparse, users = samples = sqrt(10 d log d)",
            axis="dimension",
            curves=tuple(curves),
        )
    ]


def _figure_7() -> list[Panel]:
    """Error against C for 100 samples."""
    best = {0.5: (0.5, 0.089), 1.0: (0.5, 0.019), 2.0: (0.25, 1.4e-3), 4.0: (0.25, 3.7e-4)}
    counts = (100, 200, 300, 500)

    def cell(epsilon: float, users: int) -> tuple[int, int, dict[float, float]]:
        return users, 100, dict([best[epsilon]]) if users == 200 else {}

    return _constants("100 samples", "users", counts, cell)


def _figure_8() -> list[Panel]:
    """Error against C for 100 users."""
    return _constants("100 users", "samples", (100, 200, 300, 500), lambda _, size: (100, size, {}))


def _constants(
    title: str,
    unit: str,
    counts: Sequence[int],
    cell: Callable[[float, int], tuple[int, int, dict[float, float]]],
) -> list[Panel]:
    grid = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
    panels = []
    for epsilon in EPSILONS:
        curves = []
        for count, color in zip(counts, SPREAD, strict=False):
            users, samples, reference = cell(epsilon, count)
            points = tuple(
                kent_curves_univariate(epsilon, users, samples, "shifted_rademacher", constant=c)
                for c in grid
            )
            curves.append(
                Curve(
                    label=f"{count} {unit}", color=color, x=grid, points=points, reference=reference
                )
            )

        name = f"{title}, epsilon {epsilon:g}"
        panels.append(
            Panel(title=name, axis="C of the half-width", log_x=False, curves=tuple(curves))
        )

    return panels


def _figure_9() -> list[Panel]:
    """Share of the coordinates that are found, against the clip of the hashed votes."""
    grid = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
    references = {(100, 4.0): {0.25: 0.02, 1.0: 0.95, 4.0: 0.99, 30.0: 0.83}}

    def curve(dimension: int, epsilon: float) -> Curve:
        points = tuple(
            kent_curves_sparse(epsilon, 1000, 100, dimension, sparsity=4, clip_constant=c)
            for c in grid
        )
        reference = references.get((dimension, epsilon), {})
        label = f"epsilon {epsilon:g}"
        color = COLORS[epsilon]

        return Curve(
            label=label, color=color, x=grid, points=points, measure="found", reference=reference
        )

    return [
        Panel(
            title=f"d = {dimension}, 4 of them 0.5",
            axis="C of the clip sqrt(C s)",
            quantity="share of coordinates found",
            log_y=False,
            curves=tuple(curve(dimension, epsilon) for epsilon in EPSILONS),
        )
        for dimension in (100, 500)
    ]


def _figure_10() -> list[Panel]:
    """Error of the selection where the sparsity is not what is assumed."""
    grid = tuple(float(s) for s in range(1, 11))
    return [
        Panel(
            title=f"d = 100, 4 of them {2 * chance - 1:g}",
            axis="assumed sparsity",
            log_x=False,
            curves=tuple(
                Curve(
                    label=f"epsilon {epsilon:g}",
                    color=COLORS[epsilon],
                    x=grid,
                    points=tuple(
                        kent_curves_sparse(epsilon, 1000, 200, 100, sparsity=int(s), chance=chance)
                        for s in grid
                    ),
                )
                for epsilon in EPSILONS
            ),
        )
        for chance in (0.75, 1.0)
    ]


FIGURES: dict[str, Callable[[], list[Panel]]] = {
    "1": kent_regime_figure_1,
    "2": _figure_2,
    "3": _figure_3,
    "5": kent_regime_figure_5,
    "6": kent_regime_figure_6,
    "7": _figure_7,
    "8": _figure_8,
    "9": _figure_9,
    "10": _figure_10,
    "11": kent_mixture_figure_11,
    "12": kent_mixture_figure_12,
}
