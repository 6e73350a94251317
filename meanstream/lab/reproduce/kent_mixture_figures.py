"""Those figures of Kent, Berrett and Yu that show the means of a mixture's components."""

from __future__ import annotations

from collections.abc import Sequence

from meanstream.lab.reproduce.kent_curves import (
    FOUR,
    SPREAD,
    THREE,
    Curve,
    Panel,
    Point,
    kent_curves_mixture,
)


def kent_mixture_figure_11() -> list[Panel]:
    """Means of four components of equal weight."""
    grid = (200.0, 400.0, 800.0, 1200.0, 1600.0, 2000.0)
    found: dict[float, tuple[float, ...]] = {2000.0: (-0.749, -0.250, 0.251, 0.750)}
    panels = []
    for epsilon in (2.0, 4.0):
        by_users = [kent_curves_mixture(epsilon, n, 1000, FOUR, 4) for n in grid]
        by_samples = [kent_curves_mixture(epsilon, 1000, t, FOUR, 4) for t in grid]
        panels.append(
            _components(f"1000 samples, epsilon {epsilon:g}", "users", grid, by_users, 4, {})
        )
        known = found if epsilon == 4.0 else dict[float, tuple[float, ...]]()
        panels.append(
            _components(
                f"1000 users, epsilon {epsilon:g}", "samples per user", grid, by_samples, 4, known
            )
        )

    return panels


def kent_mixture_figure_12() -> list[Panel]:
    """Means of three components, two of them rare."""
    grid = (150.0, 300.0, 600.0, 1000.0, 1500.0, 2000.0)
    return [
        _components(
            f"500 samples, epsilon {e:g}",
            "users",
            grid,
            [kent_curves_mixture(e, n, 500, THREE, 3) for n in grid],
            3,
            {},
        )
        for e in (2.0, 4.0)
    ]


def _components(  # noqa: PLR0917 - private
    title: str,
    axis: str,
    grid: tuple[float, ...],
    points: Sequence[Point],
    components: int,
    reference: dict[float, tuple[float, ...]],
) -> Panel:
    curves = tuple(
        Curve(
            label=f"component {i + 1}",
            color=SPREAD[i],
            x=grid,
            points=tuple(points),
            measure=f"component {i}",
            reference={x: means[i] for x, means in reference.items()},
        )
        for i in range(components)
    )

    return Panel(
        title=title, axis=axis, quantity="mean estimate", log_x=False, log_y=False, curves=curves
    )
