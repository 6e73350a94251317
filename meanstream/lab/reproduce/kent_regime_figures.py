"""Those figures of Kent, Berrett and Yu on regimes, the phase transition, and the shape of samples."""

from __future__ import annotations

import math
from collections.abc import Callable

from meanstream.lab.reproduce.kent_curves import COLORS, EPSILONS, SPREAD, Curve, Panel, Point


def kent_regime_figure_1() -> list[Panel]:
    """Which level is better, where: boundaries of regimes, with all constants 1."""
    ratio = tuple(10.0 ** (i / 20.0 - 1.0) for i in range(41))
    dense = tuple(x for x in ratio if x >= 1.0)
    few = tuple(x for x in ratio if x <= 1.0)
    share = 0.1

    def curve(label: str, color: str, x: tuple[float, ...], y: Callable[[float], float]) -> Curve:
        return Curve(label=label, color=color, x=x, y=tuple(y(one) for one in x))

    ball = (curve("e^(n eps^2/d): no gain above", "tab:red", ratio, math.exp),)
    sparse = (
        curve("d/(n eps^2): item level has no rate below", "tab:blue", few, lambda x: 1.0 / x),
        curve(
            "e^(n eps^2/s): user level flat above", "tab:red", few, lambda x: math.exp(x / share)
        ),
        curve(
            "d/(n eps^2) e^(n eps^2/s): item level better above",
            "k",
            few,
            lambda x: math.exp(x / share) / x,
        ),
        curve("e^(n eps^2/d): as on the ball", "tab:orange", dense, math.exp),
    )
    axis = "n epsilon^2 / d"
    quantity = "samples per user, T"

    return [
        Panel(title="l2 ball: user level never better", curves=ball, axis=axis, quantity=quantity),
        Panel(title=f"s-sparse, s = {share:g} d", curves=sparse, axis=axis, quantity=quantity),
    ]


def kent_regime_figure_5() -> list[Panel]:
    """Phase transition: the least error over half-widths, against the number of samples."""
    sizes = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7)
    references = {
        (100, 1.0): {1e2: 0.031, 1e3: 0.025, 1e4: 0.026, 1e5: 0.015},
        (100, 4.0): {1e2: 5e-4, 1e3: 4e-5, 1e4: 6e-6, 1e5: 9e-7},
    }
    widths = [0.0005 * 300.0 ** (i / 23.0) for i in range(24)]

    def points(epsilon: float, users: int) -> tuple[tuple[Point, ...], ...]:
        return tuple(
            tuple(
                {"users": users, "samples": int(t), "epsilon": epsilon, "half_width": width}
                for width in widths
            )
            for t in sizes
        )

    return [
        Panel(
            title=f"{users} users, best half-width",
            axis="samples per user",
            curves=tuple(
                Curve(
                    label=f"epsilon {epsilon:g}",
                    color=COLORS[epsilon],
                    x=sizes,
                    points=points(epsilon, users),
                    reference=references.get((users, epsilon), {}),
                )
                for epsilon in EPSILONS
            ),
        )
        for users in (100, 200)
    ]


def kent_regime_figure_6() -> list[Panel]:
    """Error against C for beta samples of several shapes."""
    grid = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)

    def point(epsilon: float, shape: float, constant: float) -> Point:
        options = {"votes": "one_hot", "constant": constant}
        named = {
            "estimator": "kent",
            "users": 200,
            "sizes": "point:100",
            "data": f"beta:{shape:g},{shape:g}",
        }

        return {**named, "epsilon": epsilon, "options": options}

    return [
        Panel(
            title=f"200 users, 100 samples, epsilon {epsilon:g}",
            axis="C of the half-width",
            log_x=False,
            curves=tuple(
                Curve(
                    label=f"beta({p:g}, {p:g})",
                    color=c,
                    x=grid,
                    points=tuple(point(epsilon, p, one) for one in grid),
                )
                for p, c in zip((0.1, 0.5, 1.0, 3.0, 5.0), SPREAD, strict=True)
            ),
        )
        for epsilon in (0.5, 1.0, 2.0)
    ]
