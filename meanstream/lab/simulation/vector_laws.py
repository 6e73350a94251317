"""Laws of vectors, densities, mixtures and categories for simulated rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import betaincinv

from meanstream.lab.papers.kent.density import trigonometric_density_function
from meanstream.lab.simulation.round_laws import SPAN
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.validation import require

FORMS = (
    "rademacher, corner:p, sphere, sparse:s,p, shifted_uniform, shifted_rademacher, trigonometric, mixture:w=mean;... "
    "shares:w,w,... or beta:a,b"
)
SHIFT = 0.3
"""Shifted samples move by one draw from [-0.3, 0.3] in each run, so that no bin's edge is
special."""

Features = Callable[[Floats], Floats]

_CHUNK = 2_000_000
_MANY = 100
"""From that many samples on, their sum is drawn from its normal limit where it has no simple
law."""


class VectorLaw(Protocol):
    """Law of the samples of all users of one run."""

    def draw(
        self, count: Ints, features: Features, rng: np.random.Generator
    ) -> tuple[Summaries, Floats]:
        """Users with that many samples each, and the truth.

        Means of features (of a mixture: of components).
        """
        ...


def vector_law_summaries(mean: Floats, count: Ints, rng: np.random.Generator) -> Summaries:
    """Make users with these means, shape (n,) or (n, d).

    No estimator of vectors looks at a first sample; the mean stands for it.
    """
    first = np.rint((mean + 1.0) * (SPAN // 2)).astype(np.int64)
    many = count if mean.ndim == 1 else count[:, np.newaxis]
    total = np.rint((mean + 1.0) * (SPAN // 2) * many).astype(np.int64)
    ids = rng.integers(0, 2**64, (len(count), 2), dtype=np.uint64)

    return Summaries(user=ids, count=count, total=total, first=first, span=SPAN)


def _radial_scale(features: Features, sample: Floats) -> float:
    """Tell by how much an estimator's features shrink a sample, where they do no more than that."""
    shrunk = features(sample[np.newaxis])[0]
    scale = float(shrunk[0] / sample[0]) if shrunk.shape == sample.shape else math.nan
    ok = bool(np.allclose(shrunk, scale * sample)) if math.isfinite(scale) else False
    require(
        ok,
        "data",
        "be trigonometric for a density, and have the estimator's dimension",
        "another law",
    )

    return scale


@dataclass(frozen=True, slots=True)
class RademacherVectors:
    """Independent coordinates -1 or 1 with these means, and perhaps further ones that are always 0.

    Examples
    --------
    >>> law = RademacherVectors((0.5, 0.0))
    >>> users, truth = law.draw(np.array([10**6, 10**6]), lambda x: x, np.random.default_rng(1))
    >>> (users.mean.round(2) + 0.0).tolist(), truth.tolist()
    ([[0.5, 0.0], [0.5, 0.0]], [0.5, 0.0])
    """

    theta: tuple[float, ...]
    zeros: int = 0
    """Further coordinates, always 0."""

    def draw(
        self, count: Ints, features: Features, rng: np.random.Generator
    ) -> tuple[Summaries, Floats]:
        """Exact."""
        many = count[:, np.newaxis]
        # All samples have the same norm: anyone who cuts them to a ball shrinks them all alike.
        scale = _radial_scale(features, np.array([1.0] * len(self.theta) + [0.0] * self.zeros))
        mean = (
            2.0
            * rng.binomial(many, (np.array(self.theta) + 1.0) / 2.0, (len(count), len(self.theta)))
            / many
            - 1.0
        )
        mean = scale * np.pad(mean, [(0, 0), (0, self.zeros)])

        return vector_law_summaries(mean, count, rng), scale * np.array(
            [*self.theta, *[0.0] * self.zeros]
        )


@dataclass(frozen=True, slots=True)
class SphereVectors:
    """Uniform on the unit sphere.

    Mean 0 and covariance 1 / d, and so are sums of many (normal from 100 samples on).
    """

    dimension: int

    def draw(
        self, count: Ints, features: Features, rng: np.random.Generator
    ) -> tuple[Summaries, Floats]:
        """Draw sums from the normal limit."""
        require(
            int(count.min()) >= _MANY,
            "samples_per_user",
            f"be at least {_MANY} for sphere",
            int(count.min()),
        )
        scale = _radial_scale(features, np.eye(1, self.dimension)[0]) / np.sqrt(
            self.dimension * count[:, np.newaxis]
        )
        mean = np.clip(scale * rng.standard_normal((len(count), self.dimension)), -1.0, 1.0)

        return vector_law_summaries(mean, count, rng), np.zeros(self.dimension)


@dataclass(frozen=True, slots=True)
class ShiftedSamples:
    """Scalar samples that move by one number in each run.

    Uniform on [0, 1], or -1 or 1, plus the shift.

    Samples leave [-1, 1], as the paper's do, and are not cut; means do not. Sums of uniform samples
    are drawn from the normal limit.
    """

    uniform: bool

    def draw(
        self,
        count: Ints,
        features: Features,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002, RUF100
    ) -> tuple[Summaries, Floats]:
        """Draw the shift, then the sums."""
        shift = rng.uniform(-SHIFT, SHIFT)
        if self.uniform:
            require(
                int(count.min()) >= _MANY,
                "samples_per_user",
                f"be at least {_MANY} here",
                int(count.min()),
            )
            mean = 0.5 + rng.standard_normal(len(count)) / np.sqrt(12.0 * count)
            center = 0.5
        else:
            mean = 2.0 * rng.binomial(count, 0.5) / count - 1.0
            center = 0.0

        return vector_law_summaries(mean + shift, count, rng), np.array([center + shift])


@dataclass(frozen=True, slots=True)
class TrigonometricDensity:
    """Samples with density `1 + sum theta_j phi_j` on [-1, 1] taken as [0, 1], j = 2, 3, ...

    Examples
    --------
    >>> law = TrigonometricDensity((0.5,))
    >>> law.draw(np.array([1000]), lambda x: x, np.random.default_rng(1))[1].tolist()
    [0.5]
    """

    theta: tuple[float, ...]

    def __post_init__(self) -> None:
        require(
            float(self._density().min()) >= 0.0,
            "theta",
            "be coefficients of a density, never negative",
            self.theta,
        )

    def _density(self) -> Floats:
        grid = np.linspace(0.0, 1.0, 4097)
        return np.asarray(
            1.0
            + trigonometric_density_function(grid, len(self.theta) + 1)[:, 1:]
            @ np.array(self.theta)
        )

    def draw(
        self, count: Ints, features: Features, rng: np.random.Generator
    ) -> tuple[Summaries, Floats]:
        """Draw every sample, and the mean of its features."""
        grid = np.linspace(-1.0, 1.0, 4097)
        density = self._density()
        cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        parts = []
        per = max(_CHUNK // max(int(count.max()), 1) // 16, 1)

        for start in range(0, len(count), per):
            counts_of_chunk = count[start : start + per]
            x = np.interp(rng.random(int(counts_of_chunk.sum())) * cumulative[-1], cumulative, grid)
            ends = np.concatenate([[0], np.cumsum(counts_of_chunk)[:-1]])
            parts.append(
                np.add.reduceat(features(x[:, np.newaxis]), ends, axis=0)
                / counts_of_chunk[:, np.newaxis]
            )

        return vector_law_summaries(np.concatenate(parts), count, rng), np.array(self.theta)


@dataclass(frozen=True, slots=True)
class RademacherMixture:
    """Every user draws all of its samples, -1 or 1, from one component."""

    weight: tuple[float, ...]
    mean: tuple[float, ...]

    def __post_init__(self) -> None:
        require(
            math.isclose(sum(self.weight), 1.0),
            "mixture",
            "have weights that add to 1",
            self.weight,
        )
        require(list(self.mean) == sorted(self.mean), "mixture", "have increasing means", self.mean)

    def draw(
        self,
        count: Ints,
        features: Features,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002, RUF100
    ) -> tuple[Summaries, Floats]:
        """Exact."""
        mean_of_user = np.array(self.mean)[rng.choice(len(self.weight), len(count), p=self.weight)]
        mean = 2.0 * rng.binomial(count, (mean_of_user + 1.0) / 2.0) / count - 1.0
        return vector_law_summaries(mean, count, rng), np.array(self.mean)


@dataclass(frozen=True, slots=True)
class DeclaredShares:
    """Categories with these shares; every user draws all of its samples from them."""

    weight: tuple[float, ...]

    def __post_init__(self) -> None:
        good = all(weight >= 0.0 for weight in self.weight) and 0.0 < sum(self.weight) < math.inf
        require(good, "data", "have weights of at least 0, not all 0", self.weight)

    def draw(
        self,
        count: Ints,
        features: Features,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002, RUF100
    ) -> tuple[Summaries, Floats]:
        """Exact."""
        share = np.array(self.weight) / sum(self.weight)
        total = rng.multinomial(count, share)
        ids = rng.integers(0, 2**64, (len(count), 2), dtype=np.uint64)
        return Summaries(
            user=ids, count=count, total=total, first=np.minimum(total, 1), span=1
        ), 2.0 * share - 1.0


@dataclass(frozen=True, slots=True)
class SpreadUsers:
    """Users' own means from a beta law on [-1, 1]; the truth are its quantiles."""

    a: float
    b: float
    quantiles: tuple[float, ...]

    def draw(
        self,
        count: Ints,
        features: Features,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002, RUF100
    ) -> tuple[Summaries, Floats]:
        """Exact; all samples of a user are alike."""
        mean = 2.0 * rng.beta(self.a, self.b, len(count)) - 1.0
        return vector_law_summaries(mean, count, rng), 2.0 * betaincinv(
            self.a, self.b, np.array(self.quantiles)
        ) - 1.0


def parse_vector_law(text: str, *, dimension: int, theta: Sequence[float]) -> VectorLaw:
    """Read a law of vectors.

    Parameters
    ----------
    text : str
        `rademacher` (independent coordinates with means theta), `corner:p` (the first coordinate 1
        with probability p, else -1; the others 0), `sphere`, `sparse:s,p` (the first s coordinates
        1 with probability p, the others with 1/2), `shifted_uniform`, `shifted_rademacher`,
        `trigonometric` (a density with coefficients theta), `mixture:w=mean;...`, `shares:w,w,...`
        (weights of categories), `beta:a,b` (users' own means, whose quantiles theta are the truth).
    dimension : int
    theta : sequence of float

    Examples
    --------
    >>> parse_vector_law("corner:0.9", dimension=3, theta=())
    RademacherVectors(theta=(0.8,), zeros=2)
    >>> parse_vector_law("mixture:0.5=-1;0.5=1", dimension=1, theta=())
    RademacherMixture(weight=(0.5, 0.5), mean=(-1.0, 1.0))
    """
    name, _, rest = text.partition(":")
    try:
        numbers = [
            float(number)
            for number in rest.replace(";", ",").replace("=", ",").split(",")
            if number
        ]
    except ValueError:
        require(False, "data", f"be one of {FORMS}", text)
        raise

    if name == "rademacher" and len(numbers) <= 1:
        means = tuple(theta) or tuple(numbers) * dimension or (0.0,) * dimension
        require(
            len(means) == dimension,
            "theta",
            f"have {dimension} numbers, as dimension says",
            list(theta),
        )
        require(all(abs(x) <= 1.0 for x in means), "theta", "lie on [-1, 1]", list(means))

        return RademacherVectors(means)

    if name == "corner" and len(numbers) == 1:
        return RademacherVectors((round(2.0 * numbers[0] - 1.0, 12),), zeros=dimension - 1)

    if name == "sparse" and len(numbers) == 2:
        signals = round(numbers[0])
        return RademacherVectors(
            (2.0 * numbers[1] - 1.0,) * signals + (0.0,) * (dimension - signals)
        )

    if name == "mixture" and numbers and len(numbers) % 2 == 0:
        return RademacherMixture(tuple(numbers[::2]), tuple(numbers[1::2]))
    simple: dict[str, Callable[[], VectorLaw]] = {
        "sphere": lambda: SphereVectors(dimension),
        "shifted_uniform": lambda: ShiftedSamples(uniform=True),
        "shifted_rademacher": lambda: ShiftedSamples(uniform=False),
        "trigonometric": lambda: TrigonometricDensity(tuple(theta)),
    }

    if name == "shares" and numbers:
        simple = {name: lambda: DeclaredShares(tuple(numbers))}
    elif name == "beta" and len(numbers) == 2 and min(numbers) > 0.0:
        simple = {name: lambda: SpreadUsers(numbers[0], numbers[1], tuple(theta) or (0.5,))}
    else:
        require(not rest, "data", f"be one of {FORMS}", text)

    require(name in simple, "data", f"be one of {FORMS}", text)
    return simple[name]()
