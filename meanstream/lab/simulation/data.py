"""Where the agents' means come from, and the distribution of a sample around its agent's mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import LARGEST, require, require_positive, require_size

DrawnMeans = Floats | Callable[[np.random.Generator, int], Floats]
"""Means that a caller gives: one for each agent, or a function of a generator and the number of
agents."""
DrawnSamples = Callable[[np.random.Generator, Floats, int], Floats]
"""A function of a generator, the agents' means and a number of samples n: samples of shape (n,
agents)."""
MARGIN = 1e-3
"""Drawn means of data on a bounded range are clipped this far inside it."""
_RANGES = {"beta": (0.0, 1.0), "bernoulli": (0.0, 1.0), "rademacher": (-1.0, 1.0)}


def data_half_width(
    data: str | DrawnSamples, stddev: float | None, *, bounded_only: bool = False
) -> float:
    """Half the length of the interval on which one agent's samples live.

    Normal data has none: it needs a declared half-width, at which deviations from the mean are
    clipped.

    Examples
    --------
    >>> round(data_half_width("uniform", 0.5), 4)
    0.866
    """
    if not isinstance(data, str):
        require(bounded_only, "half_width", "be given with samples of your own", None)
        return 0.0

    family = data.partition(":")[0]
    families = ("uniform", "normal", *_RANGES)
    require(
        family in families, "data", f"be one of {', '.join(families)} (beta:CONCENTRATION)", data
    )
    require(
        (family == "beta") == (":" in data),
        "data",
        "be written beta:CONCENTRATION, the others alone",
        data,
    )

    if family in _RANGES:
        rule = f"be left out for data {family} (the mean determines it)"
        require(stddev is None, "stddev", rule, stddev)

        if family == "beta":
            require_positive(data=_number("data", data.partition(":")[2], data))

        lower, upper = _RANGES[family]
        return (upper - lower) / 2

    if stddev is None:
        raise ValueError(f"stddev must be given for data {family}, got None")
    require_size(stddev=stddev)

    if family == "uniform":
        return stddev * math.sqrt(3)
    require(
        bounded_only,
        "half_width",
        "be given for data normal, which is unbounded and is clipped there",
        None,
    )

    return 0.0


@dataclass(frozen=True, slots=True)
class DataModel:
    """One sample given its agent's mean.

    Parameters
    ----------
    data : str
        `uniform | beta:CONCENTRATION | bernoulli | rademacher | normal`.
    stddev : float or None
        Standard deviation of uniform and normal data.
    half_width : float
        Normal deviations are clipped here, symmetrically, so that the mean stays; other data
        already lies inside.
    """

    data: str
    stddev: float | None
    half_width: float

    def variance(self, mean: Floats) -> Floats:
        """Exact variance of one sample of agents with these means."""
        family, _, argument = self.data.partition(":")
        if family == "beta":
            return mean * (1 - mean) / (float(argument) + 1)
        if family == "bernoulli":
            return mean * (1 - mean)
        if family == "rademacher":
            return 1 - mean**2

        stddev = self._declared_stddev()
        if family == "uniform":
            return np.full_like(mean, stddev**2)
        return np.full_like(mean, stddev**2 * _clipped_normal_variance(self.half_width / stddev))

    def sample(self, generator: np.random.Generator, mean: Floats, steps: int) -> Floats:
        """Draw samples of shape `(steps, *mean.shape)`."""
        family, _, argument = self.data.partition(":")
        shape = (steps, *mean.shape)
        if family == "beta":
            concentration = float(argument)
            return generator.beta(concentration * mean, concentration * (1 - mean), shape)

        if family == "bernoulli":
            return (generator.random(shape) < mean).astype(np.float64)
        if family == "rademacher":
            return np.where(generator.random(shape) < (1 + mean) / 2, 1.0, -1.0)

        if family == "uniform":
            half_width = self._declared_stddev() * math.sqrt(3)
            values = generator.random(shape)
            values *= 2 * half_width
            values += mean - half_width

            return values

        deviation = self._declared_stddev() * generator.standard_normal(shape)
        return mean + np.clip(deviation, -self.half_width, self.half_width)

    def _declared_stddev(self) -> float:
        if self.stddev is None:
            raise ValueError(f"stddev must be given with data {self.data}, got None")
        return self.stddev


@dataclass(frozen=True, slots=True)
class MeansModel:
    """How the agents' means are drawn.

    `classes:LIST | normal:MEAN,SD | uniform:A,B | t:DF,MEAN,SCALE`.

    Examples
    --------
    >>> model = MeansModel.parse("classes:0.2,0.8", data="uniform", class_sizes=(1, 2))
    >>> mean, label = model.draw(np.random.default_rng(0), 3)
    >>> mean.tolist(), label.tolist()
    ([0.2, 0.8, 0.8], [0, 1, 1])
    """

    kind: str
    numbers: tuple[float, ...]
    data: str
    spread: float = 0.0
    class_sizes: tuple[int, ...] | None = None

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        data: str,
        spread: float = 0.0,
        class_sizes: tuple[int, ...] | None = None,
    ) -> Self:
        """Read the option `means`."""
        kind, _, rest = text.partition(":")
        lengths = {"classes": None, "normal": 2, "uniform": 2, "t": 3}
        rule = "be classes:LIST, normal:MEAN,SD, uniform:A,B or t:DF,MEAN,SCALE"
        require(kind in lengths, "means", rule, text)
        numbers = tuple(_number("means", number, text) for number in rest.split(","))
        require(lengths[kind] in (None, len(numbers)), "means", rule, text)

        return cls(kind, numbers, data, spread, class_sizes)

    @property
    def has_classes(self) -> bool:
        """Whether agents of one class have exactly the same mean."""
        return self.kind == "classes" and self.spread == 0

    def check(self, agents: int) -> None:
        """Refuse impossible parameters."""
        shown = f"{self.kind}:{','.join(f'{x:g}' for x in self.numbers)}"
        require(
            all(abs(x) <= LARGEST for x in self.numbers),
            "means",
            f"be from -{LARGEST:g} to {LARGEST:g}",
            shown,
        )

        if self.kind == "normal":
            require(
                self.numbers[1] >= 0,
                "means",
                "have a standard deviation that is not negative",
                shown,
            )

        if self.kind == "uniform":
            require(self.numbers[0] < self.numbers[1], "means", "have A below B", shown)

        if self.kind == "t":
            require(
                self.numbers[0] > 0 and self.numbers[2] >= 0,
                "means",
                "have DF > 0 and SCALE >= 0",
                shown,
            )

        if self.kind == "classes":
            self._check_classes(shown)
        else:
            require(
                self.spread == 0, "spread", "be left out unless means is classes:LIST", self.spread
            )

        if self.class_sizes is not None:
            rule = f"list {len(self.numbers)} sizes >= 0 that add to agents ({agents})"
            sizes = self.class_sizes
            ok = (
                self.kind == "classes"
                and len(sizes) == len(self.numbers)
                and sum(sizes) == agents
                and min(sizes) >= 0
            )
            require(ok, "class_sizes", rule, ",".join(map(str, sizes)))

    def _check_classes(self, shown: str) -> None:
        lower, upper = _RANGES.get(self.data.partition(":")[0], (-math.inf, math.inf))
        inside = all(lower <= x <= upper for x in self.numbers)
        require(inside, "means", f"lie in [{lower:g}, {upper:g}] for data {self.data}", shown)

        if self.data.startswith("beta"):
            require(
                all(0 < x < 1 for x in self.numbers),
                "means",
                "lie strictly inside (0, 1) for data beta",
                shown,
            )

    def draw(self, generator: np.random.Generator, agents: int) -> tuple[Floats, Ints]:
        """Draw every agent's mean and the label of its class (its own index where there are no classes)."""
        if self.kind == "classes":
            label = self._place(generator, agents)
            mean = np.asarray(self.numbers)[label]
            if self.spread == 0:
                return mean, label

            return self._inside(mean + self.spread * generator.standard_normal(agents)), label

        a, b, *scale = self.numbers
        if self.kind == "normal":
            mean = a + b * generator.standard_normal(agents)
        elif self.kind == "uniform":
            mean = generator.uniform(a, b, agents)
        else:
            mean = b + scale[0] * generator.standard_t(a, agents)

        return self._inside(mean), np.arange(agents)

    def _place(self, generator: np.random.Generator, agents: int) -> Ints:
        if self.class_sizes is None:
            return generator.integers(len(self.numbers), size=agents)
        return np.repeat(np.arange(len(self.numbers)), self.class_sizes)

    def _inside(self, mean: Floats) -> Floats:
        lower, upper = _RANGES.get(self.data.partition(":")[0], (-math.inf, math.inf))
        return np.clip(mean, lower + MARGIN, upper - MARGIN)


def means_model(
    means: str | DrawnMeans,
    data: str | DrawnSamples,
    spread: float,
    class_sizes: tuple[int, ...] | None,
) -> MeansModel | OwnMeansModel:
    """Return where means come from: as an option is written, or as a caller gives them."""
    if isinstance(means, str):
        return MeansModel.parse(
            means, data=own_or_text(data), spread=spread, class_sizes=class_sizes
        )

    return OwnMeansModel(means)


def data_model(
    data: str | DrawnSamples, stddev: float | None, half_width: float
) -> DataModel | OwnDataModel:
    """Return the law of a sample: as an option is written, or as a caller draws it."""
    model = DataModel if isinstance(data, str) else OwnDataModel
    return model(data, stddev, half_width)  # type: ignore[arg-type]


def own_or_text(given: object) -> str:
    """Return an option as it is written, or that a caller gave an object instead."""
    if isinstance(given, str):
        return given
    return "own"


@dataclass(frozen=True, slots=True, eq=False)
class OwnMeansModel:
    """Means that a caller gives; agents with exactly the same mean are a class.

    Examples
    --------
    >>> mean, label = OwnMeansModel(np.array([0.2, 0.8, 0.2])).draw(np.random.default_rng(0), 3)
    >>> label.tolist()
    [0, 1, 0]
    """

    means: DrawnMeans
    has_classes: ClassVar[bool] = True

    def check(self, agents: int) -> None:
        """Refuse an array of another length."""
        if not callable(self.means):
            require(
                len(self.means) == agents,
                "agents",
                f"be {len(self.means)}, the number of means",
                agents,
            )

    def draw(self, generator: np.random.Generator, agents: int) -> tuple[Floats, Ints]:
        """Return each agent's mean and its class: the agents with exactly its mean."""
        means = self.means(generator, agents) if callable(self.means) else self.means
        mean = np.asarray(means, np.float64)
        ok = mean.shape == (agents,) and bool((np.abs(mean) <= LARGEST).all())
        require(ok, "means", f"give {agents} numbers from -{LARGEST:g} to {LARGEST:g}", mean.shape)

        return mean, np.unique(mean, return_inverse=True)[1]


@dataclass(frozen=True, slots=True, eq=False)
class OwnDataModel:
    """Samples that a caller draws."""

    draw: DrawnSamples
    stddev: float | None
    half_width: float

    def variance(self, mean: Floats) -> Floats:
        """Return the declared variance of a sample.

        NaN where none is declared, which nothing reads then.
        """
        return np.full_like(mean, math.nan if self.stddev is None else self.stddev**2)

    def sample(self, generator: np.random.Generator, mean: Floats, steps: int) -> Floats:
        """Draw samples of shape `(steps, *mean.shape)`, each agent's within an interval of the declared length."""
        values = np.asarray(self.draw(generator, mean, steps), np.float64)
        shape = (steps, *mean.shape)
        require(values.shape == shape, "samples", f"have shape {shape}", values.shape)
        widest = float(np.ptp(values, axis=0).max(initial=0.0))
        rule = "be at least half of what an agent's samples range over"
        require(
            widest <= 2 * self.half_width * (1 + 1e-12),
            "half_width",
            f"{rule} ({widest / 2:g})",
            self.half_width,
        )

        return values


def _number(name: str, text: str, shown: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be written with numbers, got {shown!r}") from None


def _clipped_normal_variance(bound: float) -> float:
    """Variance of a standard normal clipped to [-bound, bound]."""
    tail = math.erfc(bound / math.sqrt(2))
    density = math.exp(-bound * bound / 2) / math.sqrt(2 * math.pi)
    return 1 - tail - 2 * bound * density + bound * bound * tail
