"""What the figures of Kent, Berrett and Yu show, and reference values to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from meanstream.lab.reproduce.kent_curves import (
    COLORS,
    EPSILONS,
    FOUR,
    SPREAD,
    THREE,
    TUNED,
    Curve,
    Panel,
    Point,
    kent_curves_ball_error,
    kent_curves_item_error,
    kent_curves_mixture,
    kent_curves_sparse,
    kent_curves_univariate,
)

OF_CONSTANT = "C of the half-width"


def _of_epsilon(
    epsilon: float,
    x: tuple[float, ...],
    points: Iterable[Point | tuple[Point, ...]] = (),
    *,
    label: str = "",
    **more: Any,
) -> Curve:
    """Make the curve of an epsilon, in its color."""
    name = f"{label}epsilon {epsilon:g}"
    return Curve(label=name, color=COLORS[epsilon], x=x, points=tuple(points), **more)


def _figure_1() -> list[Panel]:
    """Which level is better, where: boundaries of regimes, with all constants 1."""
    ratio = tuple(10.0 ** (i / 20.0 - 1.0) for i in range(41))
    dense = tuple(x for x in ratio if x >= 1.0)
    few = tuple(x for x in ratio if x <= 1.0)
    share = 0.1

    def curve(label: str, color: str, x: tuple[float, ...], y: Callable[[float], float]) -> Curve:
        return Curve(label=label, color=color, x=x, y=tuple(map(y, x)))

    def flat(x: float) -> float:
        return math.exp(x / share)

    ball = (curve("e^(n eps^2/d): no gain above", "tab:red", ratio, math.exp),)
    sparse = (
        curve("d/(n eps^2): item level has no rate below", "tab:blue", few, lambda x: 1.0 / x),
        curve("e^(n eps^2/s): user level flat above", "tab:red", few, flat),
        curve(
            "d/(n eps^2) e^(n eps^2/s): item level better above", "k", few, lambda x: flat(x) / x
        ),
        curve("e^(n eps^2/d): as on the ball", "tab:orange", dense, math.exp),
    )
    panels = {"l2 ball: user level never better": ball, f"s-sparse, s = {share:g} d": sparse}

    return [
        Panel(title=title, curves=curves, axis="n epsilon^2 / d", quantity="samples per user, T")
        for title, curves in panels.items()
    ]


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
    item = {
        epsilon: tuple(kent_curves_item_error(epsilon, users, size) for size in sizes)
        for epsilon in EPSILONS
    }
    curves = [
        _of_epsilon(
            epsilon,
            sizes,
            [kent_curves_univariate(epsilon, users, size, "shifted_uniform") for size in sizes],
            label="user level, ",
            divide=item[epsilon],
            reference=references[epsilon],
        )
        for epsilon in EPSILONS
    ]

    schemes: tuple[tuple[str, str, Callable[[float], float], dict[float, float]], ...] = (
        (
            "semi user level, epsilon 1 (exact)",
            "--",
            lambda t: (1 / 12 / t + 8.0) / users,
            {100.0: 99.0, 1000.0: 990.0, 10000.0: 9900.0},
        ),
        (
            "split user, epsilon 1 (exact)",
            ":",
            lambda t: (1 / 12 + 8.0 * t**2) / users / t,
            {100.0: 1e4, 1000.0: 1e6, 10000.0: 1e8},
        ),
    )
    for label, line, error, reference in schemes:
        y = tuple(error(t) / full for t, full in zip(sizes, item[1.0], strict=True))
        curves.append(Curve(label=label, color="0.4", line=line, x=sizes, y=y, reference=reference))

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
    ("kent.linf", 32): {0.0: 0.0169, 2.0: 0.0177, 3.0: 5.0e-3},
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

    exact = tuple(
        kent_curves_ball_error(dimension, epsilon, 4000, 0.64 if data == "corner:0.9" else 0.0)
        for data, epsilon in cells
    )
    shown: tuple[tuple[str, str, str, tuple[Point, ...], tuple[float, ...]], ...] = (
        ("user level, l_inf", "tab:blue", "kent.linf", points("kent.linf"), ()),
        ("user level, l2", "tab:red", "kent.l2", points("kent.l2"), ()),
        ("semi user level, or one item (exact)", "0.4", "semi", (), exact),
        ("full item level (exact)", "0.7", "full", (), tuple(y / 400 for y in exact)),
    )
    curves = tuple(
        Curve(
            label=label,
            color=color,
            line="",
            x=places,
            points=simulated,
            y=y,
            reference=_REPORTED.get((name, dimension), {}),
        )
        for label, color, name, simulated, y in shown
    )
    names = tuple(
        f"{'1' if data == 'corner:0.9' else '2'}, eps {epsilon:g}" for data, epsilon in cells
    )
    title = f"d = {dimension}, 4000 users"

    return Panel(title=title, axis="setting, epsilon", names=names, log_x=False, curves=curves)


def _figure_3() -> list[Panel]:
    """Sparse vectors where the item level cannot estimate; the paper gives neither s nor p."""
    import numpy as np

    from meanstream.lab.simulation.kent_schemes import item_level_sparse_error

    users = {float(d): int((10 * d * math.log(d)) ** 0.5) for d in (100, 300, 1000, 3000)}
    curves = []
    for epsilon in EPSILONS:
        points = [kent_curves_sparse(epsilon, n, n, int(d), sparsity=4) for d, n in users.items()]
        item = tuple(
            item_level_sparse_error(int(d), epsilon, n**2, np.full(4, 0.5))
            for d, n in users.items()
        )
        curves += [
            _of_epsilon(epsilon, tuple(users), points, label="user level, "),
            _of_epsilon(epsilon, tuple(users), label="item level, ", line="--", y=item),
        ]

    title = "4-sparse, users = samples = sqrt(10 d log d)"
    return [Panel(title=title, axis="dimension", curves=tuple(curves))]


def _figure_5() -> list[Panel]:
    """Phase transition: the least error over half-widths, against the number of samples."""
    sizes = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7)
    references = {
        (100, 1.0): {1e2: 0.031, 1e3: 0.025, 1e4: 0.026, 1e5: 0.015},
        (100, 4.0): {1e2: 5e-4, 1e3: 4e-5, 1e4: 6e-6, 1e5: 9e-7},
    }
    widths = [0.0005 * 300.0 ** (i / 23.0) for i in range(24)]

    def points(epsilon: float, users: int, samples: int) -> tuple[Point, ...]:
        fixed = {"users": users, "samples": samples, "epsilon": epsilon}
        return tuple(fixed | {"half_width": width} for width in widths)

    return [
        Panel(
            title=f"{users} users, best half-width",
            axis="samples per user",
            curves=tuple(
                _of_epsilon(
                    epsilon,
                    sizes,
                    [points(epsilon, users, int(t)) for t in sizes],
                    reference=references.get((users, epsilon), {}),
                )
                for epsilon in EPSILONS
            ),
        )
        for users in (100, 200)
    ]


def _figure_6() -> list[Panel]:
    """Error against C for beta samples of several shapes."""
    grid = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)

    def point(epsilon: float, shape: float, constant: float) -> Point:
        return {
            "estimator": "kent",
            "users": 200,
            "sizes": "point:100",
            "data": f"beta:{shape:g},{shape:g}",
            "epsilon": epsilon,
            "options": {"votes": "one_hot", "constant": constant},
        }

    return [
        Panel(
            title=f"200 users, 100 samples, epsilon {epsilon:g}",
            axis=OF_CONSTANT,
            log_x=False,
            curves=tuple(
                Curve(
                    label=f"beta({shape:g}, {shape:g})",
                    color=color,
                    x=grid,
                    points=tuple(point(epsilon, shape, constant) for constant in grid),
                )
                for shape, color in zip((0.1, 0.5, 1.0, 3.0, 5.0), SPREAD, strict=True)
            ),
        )
        for epsilon in (0.5, 1.0, 2.0)
    ]


def _figure_7() -> list[Panel]:
    """Error against C for 100 samples."""
    best = {0.5: (0.5, 0.089), 1.0: (0.5, 0.019), 2.0: (0.25, 1.4e-3), 4.0: (0.25, 3.7e-4)}

    def cell(epsilon: float, users: int) -> tuple[int, int, dict[float, float]]:
        return users, 100, dict([best[epsilon]]) if users == 200 else {}

    return _constants("100 samples", "users", cell)


def _figure_8() -> list[Panel]:
    """Error against C for 100 users."""
    return _constants("100 users", "samples", lambda _, size: (100, size, {}))


def _constants(
    title: str, unit: str, cell: Callable[[float, int], tuple[int, int, dict[float, float]]]
) -> list[Panel]:
    """Make a panel for each epsilon; `cell` gives users, samples and reference values of a count."""
    grid = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
    panels = []
    for epsilon in EPSILONS:
        curves = []
        for count, color in zip((100, 200, 300, 500), SPREAD, strict=False):
            users, samples, reference = cell(epsilon, count)
            points = tuple(
                kent_curves_univariate(epsilon, users, samples, "shifted_rademacher", constant=c)
                for c in grid
            )
            label = f"{count} {unit}"
            curves.append(
                Curve(label=label, color=color, x=grid, points=points, reference=reference)
            )

        name = f"{title}, epsilon {epsilon:g}"
        panels.append(Panel(title=name, axis=OF_CONSTANT, log_x=False, curves=tuple(curves)))

    return panels


def _figure_9() -> list[Panel]:
    """Share of the coordinates that are found, against the clip of the hashed votes."""
    grid = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
    references = {(100, 4.0): {0.25: 0.02, 1.0: 0.95, 4.0: 0.99, 30.0: 0.83}}

    def curve(dimension: int, epsilon: float) -> Curve:
        points = [
            kent_curves_sparse(epsilon, 1000, 100, dimension, sparsity=4, clip_constant=c)
            for c in grid
        ]
        reference = references.get((dimension, epsilon), {})
        return _of_epsilon(epsilon, grid, points, measure="found", reference=reference)

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

    def curve(epsilon: float, chance: float) -> Curve:
        points = [
            kent_curves_sparse(epsilon, 1000, 200, 100, sparsity=int(s), chance=chance)
            for s in grid
        ]
        return _of_epsilon(epsilon, grid, points)

    return [
        Panel(
            title=f"d = 100, 4 of them {2 * chance - 1:g}",
            axis="assumed sparsity",
            log_x=False,
            curves=tuple(curve(epsilon, chance) for epsilon in EPSILONS),
        )
        for chance in (0.75, 1.0)
    ]


def _figure_11() -> list[Panel]:
    """Means of four components of equal weight."""
    grid = (200.0, 400.0, 800.0, 1200.0, 1600.0, 2000.0)
    panels = []
    for epsilon in (2.0, 4.0):
        by_users = [kent_curves_mixture(epsilon, n, 1000, FOUR, 4) for n in grid]
        by_samples = [kent_curves_mixture(epsilon, 1000, t, FOUR, 4) for t in grid]
        known = {2000.0: (-0.749, -0.250, 0.251, 0.750)} if epsilon == 4.0 else {}
        of_epsilon = f"epsilon {epsilon:g}"
        panels += [
            _components(f"1000 samples, {of_epsilon}", "users", grid, by_users),
            _components(f"1000 users, {of_epsilon}", "samples per user", grid, by_samples, known),
        ]

    return panels


def _figure_12() -> list[Panel]:
    """Means of three components, two of them rare."""
    grid = (150.0, 300.0, 600.0, 1000.0, 1500.0, 2000.0)
    return [
        _components(
            f"500 samples, epsilon {epsilon:g}",
            "users",
            grid,
            [kent_curves_mixture(epsilon, n, 500, THREE, 3) for n in grid],
        )
        for epsilon in (2.0, 4.0)
    ]


def _components(
    title: str,
    axis: str,
    grid: tuple[float, ...],
    points: Sequence[Point],
    reference: Mapping[float, tuple[float, ...]] | None = None,
) -> Panel:
    curves = tuple(
        Curve(
            label=f"component {i + 1}",
            color=SPREAD[i],
            x=grid,
            points=tuple(points),
            measure=f"component {i}",
            reference={x: means[i] for x, means in (reference or {}).items()},
        )
        for i in range(points[0]["options"]["components"])
    )

    return Panel(
        title=title, axis=axis, quantity="mean estimate", log_x=False, log_y=False, curves=curves
    )


FIGURES: dict[str, Callable[[], list[Panel]]] = {
    "1": _figure_1,
    "2": _figure_2,
    "3": _figure_3,
    "5": _figure_5,
    "6": _figure_6,
    "7": _figure_7,
    "8": _figure_8,
    "9": _figure_9,
    "10": _figure_10,
    "11": _figure_11,
    "12": _figure_12,
}
