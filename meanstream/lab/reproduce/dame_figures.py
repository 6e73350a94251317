"""What Figure 1 of DAME shows.

Its curves as configurations, and reference values to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

USERS = 10_000
EPSILON = 22 / 35
SMALL = 100_000
LARGE = 1_000_000
RUNS = 400
SHARES = tuple(i / 9 for i in range(10))
"""Ten shares of users with the large size."""
_TABULATED = (0, 2, 4, 5, 6, 8, 9)
"""Which of these shares have reference values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """One curve of Fig. 1b: an estimator with its options, simulated in mode paper.

    Attributes
    ----------
    only_large : bool
        Users with the small size are not asked, which makes public who they are. The scheme drops
        them.
    reference : dict
        Mean squared error by the position of the share in `SHARES`, measured with 400 runs.
    """

    label: str
    estimator: str
    options: dict[str, Any] = field(default_factory=dict)
    only_large: bool = False
    color: str
    line: str = "-"
    reference: dict[int, float] = field(default_factory=dict)

    def sizes(self, share: float) -> str:
        """Law of the sizes where this share of the users has the large one."""
        return f"two:{SMALL},{LARGE},{share!r}"

    def configuration(self, share: float) -> dict[str, Any]:
        """Options of `RoundsConfig` for one point, without runs and seed."""
        # The threshold of these schemes is the median size: the large one where most users have it.
        drops = self.only_large and share > 0.5
        return {
            "estimator": self.estimator,
            "users": USERS,
            "epsilon": EPSILON,
            "sizes": self.sizes(share),
            "data": "rademacher:0",
            "mode": "paper",
            "least_size": LARGE if drops else 1,
            "options": self.options,
        }


def _tabulated(*values: float | None) -> dict[int, float]:
    """Give reference values their positions; None is left out."""
    return {
        place: value for place, value in zip(_TABULATED, values, strict=True) if value is not None
    }


ESTIMATED: tuple[Estimated, ...] = (
    Estimated(
        label="DAME",
        estimator="dame",
        color="tab:red",
        reference=_tabulated(4.5e-5, 5.0e-5, 4.9e-5, 5.0e-5, 5.2e-5, 4.9e-5, 4.7e-6),
    ),
    Estimated(
        label="DAME, size 1e6 forced",
        estimator="dame",
        options={"effective_size": LARGE},
        color="tab:red",
        line="--",
        reference=_tabulated(None, 0.171, 0.023, 2.3e-3, 8.8e-6, 6.1e-6, 4.7e-6),
    ),
    Estimated(
        label="Kent et al., T = min",
        estimator="kent",
        color="tab:blue",
        reference=_tabulated(1.7e-5, 1.5e-5, 1.4e-5, 1.6e-5, 1.3e-5, 1.5e-5, 1.6e-6),
    ),
    Estimated(
        label="Kent et al., T = median",
        estimator="kent",
        options={"threshold": "median"},
        only_large=True,
        color="tab:blue",
        line="--",
        reference=_tabulated(1.7e-5, 1.5e-5, 1.4e-5, 2.5e-6, 2.6e-6, 1.7e-6, 1.6e-6),
    ),
    Estimated(
        label="Kent et al., T = median, C = 0.5",
        estimator="kent",
        options={"threshold": "median", "constant": 0.5},
        only_large=True,
        color="tab:cyan",
        line="--",
        reference=_tabulated(1.8e-6, 1.8e-6, 1.7e-6, 3.8e-7, 2.7e-7, 2.2e-7, 2.0e-7),
    ),
    Estimated(
        label="Duchi et al., one bit",
        estimator="duchi",
        color="tab:green",
        reference=_tabulated(*[1.08e-3] * 7),
    ),
)
NOTES = {
    "1a": "with the constants of the proof the upper bound is the trivial one, 4, in the upper panels; lines that are "
    "parallel to the lower bound appear only if c3 and c5 are set to 1 (dotted: shapes, not bounds).",
    "1b": "the rule of Theorem 2 gives the smaller size for every share below 1; forced to the larger one, DAME finds "
    "no bin below a share of about 0.6. T = median leaves out users with the smaller size, which makes sizes public. "
    "Reference values are measured by an own implementation. The paper says that DAME is better than the others; with "
    "its own constants the order is the opposite.",
}
FIGURES = tuple(NOTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """One panel of Fig. 1a.

    Bounds along a parameter of the sizes, or along users times epsilon squared.

    Attributes
    ----------
    family : str
        Law of the sizes, with {} for the parameter.
    along_information : bool
        The horizontal axis is users times epsilon squared, not the parameter.
    upper, lower : dict
        Reference values of both bounds by position on the axis; the upper one with the printed
        constants.
    """

    title: str
    family: str
    axis: str
    along_information: bool = False
    upper: dict[float, float] = field(default_factory=dict)
    lower: dict[float, float] = field(default_factory=dict)


INFORMATION = 500.0
BOUNDS: tuple[Bounds, ...] = (
    Bounds(title="Poisson(l)", family="poisson:{}", axis="l", upper={5: 4.0}, lower={5: 3.2e-9}),
    Bounds(title="Uniform(1, 2 l - 1)", family="uniform:1,{}", axis="l", upper={5: 4.0}),
    Bounds(title="Binomial(1000, l / 1000)", family="binomial:1000,{}", axis="l", upper={5: 4.0}),
    Bounds(
        title="Poisson(5)",
        family="poisson:5",
        axis="users epsilon^2",
        along_information=True,
        upper={900: 4.0, 3951: 2.47, 1e4: 0.563, 4e4: 0.0794, 1.6e5: 0.0201},
        lower={500: 3.2e-9},
    ),
)
