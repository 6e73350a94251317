"""Rules of the settings of rounds that concern several of them: what does not fit is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meanstream.operators.estimators.registry import estimator_class
from meanstream.operators.rounds.estimator_traits import TAILS
from meanstream.operators.validation import require, require_bounds
from meanstream.streaming.sources.categories import require_categories

if TYPE_CHECKING:
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def require_one_budget(settings: RoundsSettings) -> None:
    """Refuse a budget for several windows that does not fit with what else is declared."""
    windows = settings.user_windows
    delta = settings.user_delta
    require(0.0 <= delta < 1.0, "delta", "be at least 0 and below 1", delta)

    if windows is None:
        rule = "be left out without user_windows, for which it is; an estimator's own is an option"
        require(not delta, "delta", rule, delta)
        return

    budget = settings.user_budget
    rule = "be left out with user_windows, for which epsilon is the budget of a user"
    require(budget is None, "user_budget", rule, budget)
    _ = settings.window_budget


def require_tails(settings: RoundsSettings) -> None:
    """Refuse a declaration that nothing follows from."""
    own = "be given as --tails, and not as the estimator's own"
    tails = settings.tails
    require("tails" not in settings.options, "tails", own, settings.options.get("tails"))

    # A declaration must be one that the estimator uses.
    if tails is not None:
        require(tails in TAILS, "tails", f"be {' or '.join(TAILS)}, or be left out", tails)
        can = "tails" in estimator_class(settings.estimator).options
        require(
            can,
            "tails",
            f"be left out for {settings.estimator}, which does not ask for them",
            tails,
        )


def _require_fit(
    settings: RoundsSettings, name: str, asked: bool, *, such_as: str, why: str = ""
) -> None:
    """Refuse an answer to what the estimator does not ask, and no answer to what it does."""
    answer = getattr(settings, name)
    left_out = f"be left out for {settings.estimator}{why}"
    require(asked or answer is None, name, left_out, answer)
    require(not asked or bool(answer), name, f"be given for {settings.estimator}{such_as}", answer)


def require_questions(settings: RoundsSettings) -> None:
    """Refuse categories and quantiles without an estimator of them, and the other way round."""
    answers = estimator_class(settings.estimator).answers
    named = settings.categories
    _require_fit(settings, "categories", answers == "shares", such_as=", such as a,b,c")
    _require_fit(settings, "quantiles", answers == "quantiles", such_as=", such as 0.5,0.9")
    require(
        "quantiles" not in settings.options,
        "quantiles",
        "be given as --quantiles",
        settings.options,
    )

    if named is None:
        return
    require_categories(named)
    require(
        "categories" not in settings.options,
        "categories",
        "be given as --categories",
        settings.options,
    )

    for name, end in (("lower", 0.0), ("upper", 1.0)):
        given = getattr(settings, name)
        require(
            given == end,
            name,
            f"be {end:g} with categories, whose shares lie between 0 and 1",
            given,
        )


def require_coordinates(settings: RoundsSettings) -> None:
    """Refuse bounds and coordinates that do not fit one another, or not the estimator."""
    known_class = estimator_class(settings.estimator)
    names = settings.values
    options = known_class.options
    vector = "dimension" in options

    columns = ": the columns of a vector, one for each coordinate"
    _require_fit(settings, "values", vector, such_as=columns, why=", which takes one --value")
    if names is not None:
        require(len(set(names)) == len(names), "values", "be different columns", ",".join(names))
        require(
            "dimension" not in settings.options,
            "dimension",
            "be left out: values say it",
            len(names),
        )

    for name in ("lower", "upper"):
        bound = getattr(settings, name)
        n = 1 if names is None else len(names)
        fits = not isinstance(bound, tuple) or (names is not None and len(bound) == n)
        require(fits, name, f"be one number, or one for each of {n} values", bound)

    for lower, upper in zip(*map(np.atleast_1d, settings.ends), strict=True):
        require_bounds(float(lower), float(upper))

    if known_class.answers == "density":
        name = settings.estimator
        between = settings.between_users
        fixed = settings.users is not None or "terms" in settings.options
        # Its functions of a sample are summed up before anyone knows how many users take part.
        require(fixed, "users", f"be given for {name}, or its option terms", None)
        rule = f"be left out for {name}, which sums up functions of values"
        require(between is None, "between_users", rule, between)
