"""Curves and points of the figures of Kent, Berrett and Yu, as options of simulations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

EPSILONS = (0.5, 1.0, 2.0, 4.0)
COLORS = {0.5: "tab:blue", 1.0: "tab:orange", 2.0: "tab:green", 4.0: "tab:red"}
SPREAD = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
TUNED = {0.5: 0.5, 1.0: 0.5, 2.0: 0.25, 4.0: 0.25}
"""C of Section A.2 for each epsilon."""
FOUR = "mixture:0.25=-0.75;0.25=-0.25;0.25=0.25;0.25=0.75"
THREE = "mixture:0.1=-0.75;0.8=0;0.1=0.75"
CUT = 0.3
"""Users mark means so far from 0: neither form of (37) that the paper prints gives the shape of its
Fig. 9."""

Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One curve.

    Attributes
    ----------
    x : tuple of float
    points : tuple
        For each x, options of a simulation in mode paper, or several of which the one with the
        least error counts. Empty for a curve that is computed.
    y : tuple of float
        The computed values.
    measure : str
        "mse", "found" (share of the first `sparsity` coordinates that were selected) or "component
        i".
    divide : tuple of float
        What each measure is divided by; nothing if empty.
    reference : dict
        Measured elsewhere, by x.
    """

    label: str
    color: str
    line: str = "-"
    x: tuple[float, ...]
    points: tuple[Point | tuple[Point, ...], ...] = ()
    y: tuple[float, ...] = ()
    measure: str = "mse"
    divide: tuple[float, ...] = ()
    reference: dict[float, float] = field(default_factory=dict)

    @property
    def is_component(self) -> bool:
        """Whether the mean of a component is shown, with its standard deviation over the runs."""
        return self.measure.startswith("component")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Curves over one axis; `names` are the names of its values where these are no numbers."""

    title: str
    axis: str
    curves: tuple[Curve, ...]
    quantity: str = "mean squared error"
    log_x: bool = True
    log_y: bool = True
    names: tuple[str, ...] = ()

    def shown(self, curves: list[dict[str, Any]]) -> dict[str, Any]:
        """Give the panel as it is printed and drawn, with what its curves show."""
        return {
            "title": self.title,
            "axis": self.axis,
            "quantity": self.quantity,
            "log": [self.log_x, self.log_y],
            "names": list(self.names),
            "curves": curves,
        }


def kent_curves_univariate(
    epsilon: float, users: int, samples: float, data: str, **options: Any
) -> Point:
    """Options of a simulation of the univariate mean with one-hot votes, as in the paper's experiments."""
    return {
        "estimator": "kent.univariate",
        "epsilon": epsilon,
        "users": users,
        "sizes": f"point:{samples:.0f}",
        "data": data,
        "options": {"votes": "one_hot", "constant": TUNED[epsilon], **options},
    }


def kent_curves_item_error(epsilon: float, users: int, samples: float) -> float:
    """Mean squared error of the full item level for uniform samples: exact."""
    return (1 / 12 + 8 / epsilon**2) / users / samples


def kent_curves_ball_error(dimension: int, epsilon: float, reports: float, norm2: float) -> float:
    """Mean squared error of the mean of Duchi's reports from the unit ball (their equation 25): exact."""
    from meanstream.lab.simulation.kent_schemes import ball_reach

    reach = ball_reach(dimension, epsilon)
    return (reach**2 - norm2) / reports


def kent_curves_sparse(
    epsilon: float, users: int, samples: int, dimension: int, *, sparsity: int, **more: Any
) -> Point:
    """Options of a simulation of the selection.

    4 coordinates 1 with probability `chance` (0.75).
    """
    chance = more.pop("chance", 0.75)
    options = {
        "votes": "one_hot",
        "constant": TUNED[epsilon],
        "clip_constant": 1.0,
        "cut": CUT,
    } | more

    return {
        "estimator": "kent.sparse_select",
        "epsilon": epsilon,
        "users": users,
        "sizes": f"point:{samples}",
        "data": f"sparse:4,{chance}",
        "dimension": dimension,
        "options": options | {"dimension": dimension, "sparsity": sparsity},
    }


def kent_curves_mixture(
    epsilon: float, users: float, samples: float, data: str, components: int
) -> Point:
    """Options of a simulation of a mixture."""
    return {
        "estimator": "kent.mixture",
        "epsilon": epsilon,
        "users": int(users),
        "sizes": f"point:{samples:.0f}",
        "data": data,
        "options": {"components": components, "constant": TUNED[epsilon]},
    }
