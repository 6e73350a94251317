"""The list of the estimators of a population's mean: a new one is its file, and one line here."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any, cast

from meanstream.operators.entry_points import (
    ESTIMATORS_GROUP,
    entry_points_of,
    register_passed,
    valid_own_name,
)
from meanstream.operators.limits import LEAST_EPSILON
from meanstream.operators.validation import closest_valid, require

if TYPE_CHECKING:
    from meanstream.operators.noise.window_budget import WindowBudget
    from meanstream.operators.rounds.round_protocol import Estimator

ESTIMATORS: dict[str, str] = {
    "one_shot": "meanstream.operators.estimators.one_shot:OneShot",
    "dame": "meanstream.lab.papers.dame.dame:Dame",
    "kent": "meanstream.lab.papers.kent.univariate:Kent",
    "kent.univariate": "meanstream.lab.papers.kent.univariate:Kent",
    "kent.linf": "meanstream.lab.papers.kent.kent_vectors:Linf",
    "kent.l2": "meanstream.lab.papers.kent.l2:L2",
    "kent.sparse_select": "meanstream.lab.papers.kent.sparse:SparseSelect",
    "kent.sparse_threshold": "meanstream.lab.papers.kent.sparse:SparseThreshold",
    "kent.density": "meanstream.lab.papers.kent.density:Density",
    "kent.mixture": "meanstream.lab.papers.kent.mixture:Mixture",
    "kent.cover": "meanstream.lab.papers.kent.cover:CoverSelect",
    "duchi": "meanstream.lab.papers.dame.round_baselines:Duchi",
    "item": "meanstream.lab.papers.dame.round_baselines:Item",
    "semi": "meanstream.lab.papers.dame.round_baselines:Semi",
    "split": "meanstream.lab.papers.dame.round_baselines:Split",
    "plan": "meanstream.operators.estimators.plan.planned_rounds:Plan",
    "adaptive": "meanstream.operators.estimators.adaptive.adaptive:Adaptive",
    "category_shares": "meanstream.operators.estimators.category_shares:CategoryShares",
    "quantile_tree": "meanstream.operators.estimators.quantile_tree:QuantileTree",
    "quantile_search": "meanstream.operators.estimators.quantile_search:QuantileSearch",
    "central.mean": "meanstream.operators.estimators.central_mean:CentralMean",
    "repeating": "meanstream.operators.estimators.carried.carried_rounds:Carried",
    "cummings.ideal": "meanstream.lab.papers.cummings.known_sizes:Ideal",
    "cummings.known_sizes": "meanstream.lab.papers.cummings.known_sizes:KnownSizes",
    "cummings.private_sizes": "meanstream.lab.papers.cummings.private_sizes:PrivateSizes",
    "cummings.ratio": "meanstream.lab.papers.cummings.ratio:Ratio",
}
"""Name of each estimator, and where its class is: "module:Class". Built by `build_estimator`."""

DEFAULT_ESTIMATOR = "plan"
"""What is taken if no one names one, for a window by itself."""

LEARNING_ESTIMATOR = "repeating"
"""What is taken if no one names one, where windows follow one another."""


def build_estimator(name: str, *, epsilon: float, users: int, **options: Any) -> Estimator:
    """Build an estimator of the registry.

    Parameters
    ----------
    name : str
        A key of `ESTIMATORS`.
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    **options
        Those of the estimator: `sizes`, `mode`, `between_users`, `level`...

    Raises
    ------
    ValueError
        If the name is unknown, or an option is out of range or not one of this estimator's.
    """
    build = estimator_class(name)
    known = build.options
    for option in options:
        if option not in known:
            raise ValueError(
                f"{name} takes no option {option!r}{closest_valid(option, sorted(known))}"
            )

    for option, parameter in inspect.signature(build).parameters.items():
        missing = parameter.default is parameter.empty and option in known and option not in options
        require(not missing, option, f"be given for {name}", None)

    return cast("Estimator", build(epsilon=epsilon, users=users, **options))


def build_estimator_of_budget(
    name: str, budget: WindowBudget, *, users: int, **options: Any
) -> Estimator:
    """Build an estimator for one of several windows that share a budget.

    Gaussian noise where that has less variance, and else a part of epsilon that exact composition
    allows in each window: a function of the budget alone.

    Raises
    ------
    ValueError
        As for `build_estimator`; or if the estimator has a delta of its own, or protects single
        samples.
    """
    traits = estimator_class(name)
    own_delta = "delta" in traits.options
    rule = f"be left out for {name}, which has a delta of its own"
    require(not own_delta, "user_windows", rule, budget.windows)
    rule = f"be left out for {name}, which protects single samples"
    unit = getattr(traits, "privacy_unit", "user")
    require(unit == "user", "user_windows", rule, budget.windows)

    rule = f"be fewer for epsilon {budget.epsilon:g}: each window would have {budget.each:.2g}"
    require(budget.each >= LEAST_EPSILON, "user_windows", rule, budget.windows)
    built: Any = build_estimator(name, epsilon=budget.each, users=users, **options)

    if takes_gaussian_noise(name, budget):
        return cast("Estimator", built.over_windows(budget))
    return cast("Estimator", built)


def takes_gaussian_noise(name: str, budget: WindowBudget) -> bool:
    """Tell whether an estimator's sums get Gaussian noise for windows that share this budget."""
    may = getattr(estimator_class(name), "takes_gaussian_noise", False)
    return bool(may and budget.noise == "gaussian")


def estimator_class(name: str) -> Any:
    """Import the class of an estimator; its `options` are the names that it takes.

    It is one of the registry, or of another package that has it as an entry point of
    "meanstream.estimators", under a name that the registry does not have.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    if name not in ESTIMATORS:
        others = entry_points_of(ESTIMATORS_GROUP)
        require(
            name in others, "estimator", f"be one of {', '.join({**ESTIMATORS, **others})}", name
        )

        return others[name].load()

    module, _, attribute = ESTIMATORS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def estimator_name(given: str | type[Any]) -> str:
    """Return the name of an estimator.

    One that is passed as a class is registered for this process.

    Examples
    --------
    >>> estimator_name("plan")
    'plan'
    """
    if isinstance(given, str):
        return given
    name = valid_own_name("estimator", given, ESTIMATORS)
    require(isinstance(given, type), "estimator", "be a class, not an instance of it", name)

    return register_passed(ESTIMATORS_GROUP, name, given)


def distinct_estimators() -> list[str]:
    """Name every class once, in the order of the registry."""
    return list(dict.fromkeys(estimator_class(name).name for name in ESTIMATORS))


def estimator_taken_for(case: str) -> str:
    """Name the estimator that is taken in a case; see `EstimatorTraits.taken_for`.

    Examples
    --------
    >>> estimator_taken_for("no search")
    'one_shot'
    """
    (found,) = (name for name in distinct_estimators() if estimator_class(name).taken_for == case)
    return found
