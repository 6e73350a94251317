"""What to expect of vectors, densities and mixtures before any user is queried, and which estimator to take."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scipy.special import ndtri

from meanstream.operators.estimators.registry import (
    build_estimator,
    distinct_estimators,
    estimator_class,
)
from meanstream.operators.estimators.sparse_size import recommended_sparse, require_sparsity
from meanstream.operators.forecast.users_needed import number_or, users_needed
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require, require_between, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCandidate:
    """Public: what one estimator is predicted to do.

    Attributes
    ----------
    name : str
        Key of `meanstream.operators.estimators.registry.ESTIMATORS`.
    options : dict
        What it is built with, on [-1, 1].
    mse : float
        Predicted mean squared error on [-1, 1], summed over coordinates or components; integrated
        over the bounds relative to the flat density, for a density.
    half_width : float or None
        Of the interval of one coordinate or component, their root mean square, in the value's unit;
        None for a density.
    users_needed : int or None
        For the target; None without one, or beyond 10**9 users.
    threshold : int or None
        Users with fewer samples than this count as lying in the middle: None where there is no such
        number.
    terms, left_out : int and float, or None
        Of a density: number of functions, and the part of `mse` that is due to the functions left
        out.
    assumes : str
        Of the users.
    """

    name: str
    options: dict[str, Any]
    mse: float
    half_width: float | None
    users_needed: int | None
    threshold: int | None
    terms: int | None
    left_out: float | None
    assumes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyForecast:
    """Public: what `meanstream.operators.forecast.family_forecast.forecast_family` found.

    Attributes
    ----------
    wanted : str
        "vector", "density" or "mixture".
    candidates : tuple of FamilyCandidate
        Least error first.
    refused : dict
        Name of each estimator that does not take these numbers, and why.
    guess_mse : float
        Error of no answer at all, which a recommended estimator stays below.
    recommended : str or None
        Name of one of the candidates; None where they do no better than guessing.
    paper_recommends : str or None
        Between the two of sparse vectors, by the paper's rule, whose constant is left open there.
    sentence, warning : str
        The recommendation, and what it stands on, in words.
    """

    users: int
    epsilon: float
    level: float
    wanted: str
    dimension: int | None
    sparsity: int | None
    radius: float | None
    smoothness: int | None
    components: int | None
    between_users: float | None
    target_half_width: float | None
    candidates: tuple[FamilyCandidate, ...]
    refused: dict[str, str]
    guess_mse: float
    recommended: str | None
    paper_recommends: str | None
    sentence: str
    warning: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def family_sentence(
    candidates: Sequence[FamilyCandidate],
    chosen: str | None,
    guess: float,
    target: float | None,
    radius: float | None,
) -> str:
    """Say the recommendation in one sentence, and why."""
    best = candidates[0]
    if chosen is None:
        wide = ""
        if best.half_width is not None:
            wide = f" and intervals of half-width {best.half_width:.3g}"

        text = (
            f"Use none: too few users; even {best.name} has a mean squared error of {best.mse:.3g}{wide},"
            f" no better than a guess ({guess:.3g})"
        )
    elif best.half_width is None:
        left = best.left_out or 0.0
        text = (
            f"Use {best.name} with {best.terms} functions: error {math.sqrt(best.mse):.3g} of the flat density's"
            f" height, root mean square over the bounds ({math.sqrt(left):.3g} for the functions left out)"
        )
    else:
        text = f"Use {best.name}: half-width {best.half_width:.3g} for each {estimator_class(best.name).part}"
        if why := _why(best, candidates, radius):
            text += f", because {why}"

    if target is not None:
        needed = number_or("more than 10**9", best.users_needed)
        text += f". A half-width of {target:g} needs {needed} users"

    return f"{text}."


def _why(best: FamilyCandidate, candidates: Sequence[FamilyCandidate], radius: float | None) -> str:
    others = [candidate for candidate in candidates[1:] if candidate.half_width is not None]
    against = f" (next: {others[0].name}, {others[0].half_width:.3g})" if others else ""
    why: str = estimator_class(best.name).why(best.options, radius)
    return why + against


def family_warning(best: FamilyCandidate, others: Collection[str]) -> str:
    """Say what the recommendation stands on; the others' names tell what could be taken instead."""
    text = f"It assumes: {best.assumes}. Where that is not so, intervals miss, by an error that more users do not mend"
    text += estimator_class(best.name).caution(others)

    if best.threshold is not None:
        text += (
            f". The law of sizes is taken as true: if more users than it says have less than {best.threshold} samples,"
            " answers are biased to the middle of their windows by that share"
        )

    return f"{text}."


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyAsk:
    """Public: what is to be estimated, and what is known of it.

    One of `dimension`, `density` and `components`.

    Parameters
    ----------
    users : int
        How many take part.
    epsilon : float
        Privacy of one user's whole window of samples.
    sizes : SizeDistribution
        Of users' numbers of samples (public).
    lower, upper : float
        Declared bounds of a value, of every coordinate; everything else is in its unit.
    level : float
        Of the intervals.
    dimension : int, optional
        Number of coordinates of a vector.
    sparsity : int, optional
        At most that many coordinates differ from the middle of the bounds.
    radius : float, optional
        Vectors lie in a ball of this radius around the middle; default: anywhere within the bounds.
    density : bool
        The density of the samples is wanted.
    smoothness : int, optional
        How often the density can be differentiated (default 2).
    components : int, optional
        Number of components of a mixture.
    between_users : float, optional
        Declared bound on the standard deviation of users' own means, in each coordinate.
    target_half_width : float, optional
        Half-width wanted of the intervals of coordinates or components.
    """

    users: int
    epsilon: float
    sizes: SizeDistribution
    lower: float = -1.0
    upper: float = 1.0
    level: float = 0.95
    dimension: int | None = None
    sparsity: int | None = None
    radius: float | None = None
    density: bool = False
    smoothness: int | None = None
    components: int | None = None
    between_users: float | None = None
    target_half_width: float | None = None
    known: dict[tuple[str, int], tuple[float, dict[str, Any]]] = field(
        default_factory=dict, repr=False
    )

    def __post_init__(self) -> None:
        require(self.lower < self.upper, "lower", f"be below upper ({self.upper!r})", self.lower)
        require_between(0.0, 1.0, level=self.level)

        for name, with_, given in (
            ("sparsity", "dimension", self.dimension is not None),
            ("radius", "dimension", self.dimension is not None),
            ("smoothness", "density", self.density),
        ):
            require(
                given or getattr(self, name) is None,
                name,
                f"be left out without {with_}",
                getattr(self, name),
            )

        wanted = [self.dimension is not None, self.density, self.components is not None]
        require(
            sum(wanted) == 1,
            "dimension",
            "be given alone: it, density or components",
            self.dimension,
        )

        if self.target_half_width is not None:
            rule = "be left out with density: its band is a function, not one width"
            require(not self.density, "target_half_width", rule, self.target_half_width)
            require_positive(target_half_width=self.target_half_width)

        if self.between_users is not None and self.dimension is None:
            task = (
                "density, but for 0 (all users draw from one law)" if self.density else "components"
            )
            good = self.density and self.between_users == 0.0
            require(good, "between_users", f"be left out with {task}", self.between_users)

        if self.dimension is not None:
            require(self.dimension >= 1, "dimension", "be at least 1", self.dimension)
            widest = self.half * math.sqrt(self.dimension)
            rule = f"lie in (0, {widest:.4g}], half the bounds times sqrt(dimension)"
            require(
                self.radius is None or 0.0 < self.radius <= widest * (1 + 1e-12),
                "radius",
                rule,
                self.radius,
            )

            if self.sparsity is not None:
                require_sparsity(self.sparsity, self.dimension)

    @property
    def half(self) -> float:
        """Half the width of the bounds."""
        return 0.5 * (self.upper - self.lower)

    @property
    def wanted(self) -> str:
        """What is to be estimated."""
        return "density" if self.density else "mixture" if self.components is not None else "vector"

    def options(self) -> dict[str, dict[str, Any]]:
        """Name every candidate, and the options that it is built with."""
        options = {
            name: estimator_class(name).family_options(self) for name in distinct_estimators()
        }
        return {name: own for name, own in options.items() if own is not None}

    def predicted(self, name: str, users: int) -> tuple[float, dict[str, Any]]:
        """Sum (integrate) the mean squared error on [-1, 1], and let the estimator describe itself."""
        if (name, users) not in self.known:
            options = self.options()[name]
            common: dict[str, Any] = {
                "epsilon": self.epsilon,
                "sizes": self.sizes,
                "level": self.level,
            }
            estimator: Any = build_estimator(name, users=users, **common, **options)
            said = estimator.describe()
            mse = float(said["predicted_stderr"]) ** 2 + float(said.get("left_out", 0.0))
            self.known[name, users] = mse + estimator.missed_mse(users), said

        return self.known[name, users]


_OF_THE_ASK = (
    *("users", "epsilon", "level", "wanted", "dimension", "sparsity", "radius", "smoothness"),
    *("components", "between_users", "target_half_width"),
)
"""What a forecast repeats of its ask."""


def forecast_family(ask: FamilyAsk) -> FamilyForecast:
    """Predict what every candidate does with these users, and recommend one.

    Parameters
    ----------
    ask : FamilyAsk

    Notes
    -----
    **Privacy.** Nothing is released: everything is computed from public numbers, as by `forecast`.

    Errors are summed over coordinates (components), integrated for a density; with `sparsity`, over
    the coordinates that may differ from the middle. None is recommended whose error is no less than
    that of guessing the middle, or whose intervals are as wide as the bounds.

    Examples
    --------
    >>> sizes = SizeDistribution.parse("point:100")
    >>> found = forecast_family(FamilyAsk(users=20_000, epsilon=1.0, sizes=sizes, dimension=20, radius=1.0))
    >>> found.recommended, [one.name for one in found.candidates]
    ('kent.l2', ['kent.l2', 'kent.linf'])
    """
    candidates = []
    refused = {}
    for name in ask.options():
        try:
            candidates.append(_candidate(ask, name))
        except ValueError as error:
            refused[name] = str(error)

    if not candidates:
        raise ValueError(next(iter(refused.values())))
    candidates.sort(key=lambda candidate: candidate.mse)
    best = candidates[0]
    guess = _guessing(ask)
    widest = min(ask.half, ask.radius or math.inf)
    chosen = best.name if best.mse < guess and (best.half_width or 0.0) < widest else None
    paper = None

    if ask.dimension is not None and ask.sparsity is not None:
        paper = recommended_sparse(
            epsilon=ask.epsilon, users=ask.users, dimension=ask.dimension, samples=ask.sizes.least
        )

    return FamilyForecast(
        **{name: getattr(ask, name) for name in _OF_THE_ASK},
        candidates=tuple(candidates),
        refused=refused,
        guess_mse=guess,
        recommended=chosen,
        paper_recommends=paper,
        sentence=family_sentence(candidates, chosen, guess, ask.target_half_width, ask.radius),
        warning=family_warning(best, {one.name for one in candidates}),
    )


def _candidate(ask: FamilyAsk, name: str) -> FamilyCandidate:
    mse, said = ask.predicted(name, ask.users)
    z = float(ndtri(0.5 * (1.0 + ask.level))) * ask.half
    parts = estimator_class(name).parts(ask)
    needed = None

    if ask.target_half_width is not None:
        needed = users_needed(
            lambda n: math.sqrt(ask.predicted(name, n)[0]),
            ask.target_half_width / z * math.sqrt(parts),
        )

    options = ask.options()[name]
    return FamilyCandidate(
        name=name,
        options=options,
        mse=mse,
        half_width=None if ask.density else z * math.sqrt(mse / parts),
        users_needed=needed,
        threshold=int(said.get("effective_size", 0)) or None,
        terms=said.get("terms"),
        left_out=said.get("left_out"),
        assumes=estimator_class(name).family_assumes(ask, options, said),
    )


def _guessing(ask: FamilyAsk) -> float:
    """Largest squared error of no answer at all.

    The middle of the bounds; for a density the flat one.
    """
    if ask.density:
        return 1.0
    if ask.components is not None:
        # Means that are off by half their share of the bounds are not distinguished.
        return ask.components * (1.0 / ask.components) ** 2

    return min(
        float(ask.sparsity or ask.dimension or 1), ((ask.radius or math.inf) / ask.half) ** 2
    )
