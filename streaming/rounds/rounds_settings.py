"""What the parties of a round agree on, the name of a round, and the keyed noise of its reports."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from meanstream.operators.estimators.registry import (
    DEFAULT_ESTIMATOR,
    estimator_class,
    estimator_name,
    takes_gaussian_noise,
)
from meanstream.operators.limits import LEAST_EPSILON
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise, canonical
from meanstream.operators.noise.window_budget import WindowBudget
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.central_rounds import central_numeric_cost, is_central
from meanstream.operators.rounds.round_grids import CategoryGrid, Grid, VectorGrid
from meanstream.operators.rounds.round_protocol import Estimator
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import (
    require,
    require_between,
    require_epsilon,
    require_name,
    valid_float,
    valid_int,
)
from meanstream.streaming.rounds import rounds_rules
from meanstream.streaming.rounds.rounds_design import (
    UNKNOWN_SIZES,
    design_least_users,
    designed_estimator,
)
from meanstream.streaming.rounds.window_widths import Window, Windows

HOST_ONLY = ("user_budget", "user_epsilons", "allowed_lateness")
"""Settings that concern the host of the users' side alone; both sides must agree on the others."""

FIRST_FIELDS = frozenset(
    {
        "lower",
        "upper",
        "epsilon",
        "window",
        "estimator",
        "options",
        "sizes",
        "users",
        "between_users",
        "user_budget",
    }
    | {"allowed_lateness", "name", "level", "mode"}
)
"""Settings that are part of every protocol; what came later is part of those that use it."""

MOST_USERS = 10**12
"""More than there will be; an estimator computes with floats."""
DIGITS = 2
"""Leading digits of a counted number of users that an estimator is designed for."""


NO_SLOPE = (
    "be repeating with a prediction: it learns from window to window how much of it to use, and "
    "only its narrow windows gain by it"
)
"""Why other estimators have no predictions."""

NO_ORDER = "users of a window would have to wait for the answer of the one before"
"""Why what windows carry on is not carried between two sides."""


@dataclass(frozen=True, kw_only=True)
class RoundsSettings:
    """Plain data, public: which mean of which values, how it is protected and estimated.

    Parameters
    ----------
    lower, upper : float or tuple of float
        Declared bounds of a value, in its own unit; they must not be read off the data. Of vectors,
        one for all coordinates or one for each.
    epsilon : float
        Of one user's whole window of samples, their number included; with `user_windows`, of that
        many windows of a user together.
    window : str
        `7d` (fixed), `7d,1d` (sliding), `session:30m` or `month@Europe/Berlin` (calendar);
        see `meanstream.streaming.rounds.window_widths.Windows`.
    estimator : str
        A key of `meanstream.operators.estimators.registry.ESTIMATORS`.
    options : dict
        Options of the estimator by name, plain data.
    sizes : str, optional
        The public law of the number of samples of a user, as `read_sizes` reads it;
        or "unknown": the plan then asks a tenth of the users for it first.
    users : int, optional
        How many users take part in a window. Not given: they are counted in each window, and the
        estimator is designed for that number rounded down to two digits; for the least that it can
        be designed for, if fewer come.
    between_users : float, optional
        Declared bound on the standard deviation of users' own means, in the value's unit. 0: all
        users draw from one law, as the papers assume. Not given: nothing is assumed.
    user_budget : float, optional
        Greatest total epsilon of a user over all windows; beyond it, the user's data does not
        enter.
    user_windows : int, optional
        Windows of a user that `epsilon` and `user_delta` pay for together; the user's data does not
        enter later ones. Not given: each window costs epsilon.
    user_delta : float
        Delta of these windows together. 0: each of them has an equal part of epsilon.
    allowed_lateness : float
        Seconds that a window stays open behind its end, where the source has no end: by the clock
        in the engine and with `ReadKafka`; see `meanstream.streaming.rounds.rounds_intake`.
    name : str, optional
        Name of the deployment, part of each round's id and of the key of every report. Where
        reports are made or tallied, it is needed: a store makes one, a pipeline is given one, two
        sides agree on one.
    level : float
        Nominal coverage of the intervals.
    mode : {"tuned", "paper"}
        Of the estimator.
    values : tuple of str, optional
        Names of the coordinates, for estimators of vectors.
    categories : tuple of str, optional
        Declared categories, for estimators of shares, whose `lower` and `upper` are 0 and 1. One of
        them may be `NAME=*`, which takes every text that is no other category.
    quantiles : tuple of float, optional
        Probabilities, ascending, for estimators of quantiles over users of each user's own mean.
    prediction : str, optional
        Name of the column of a public table that predicts each user's mean, for an estimator that
        learns from window to window how much of it to use.
    user_epsilons : str, optional
        Name of the column of a public table that says which epsilon of a window each user accepts:
        users who accept less than `epsilon` take no part.
    tails : {"exponential"}, optional
        Declares that the tails of users' means fall off at least exponentially, for estimators that
        clip then. Not given: nothing is assumed of them.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value. Sliding windows are refused unless the budget
        of a user covers the windows that overlap.

    Examples
    --------
    >>> RoundsSettings(lower=-30, upper=120, epsilon=1.0, window="7d,1d")
    Traceback (most recent call last):
    ValueError: user_budget must be at least 7 for sliding windows '7d,1d' (a sample is in 7 windows, each costs \
epsilon 1), got None
    """

    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]
    epsilon: float
    window: str
    estimator: str = DEFAULT_ESTIMATOR
    options: dict[str, Any] = field(default_factory=dict)
    sizes: str | None = None
    users: int | None = None
    between_users: float | None = None
    user_budget: float | None = None
    allowed_lateness: float = 0.0
    name: str | None = None
    level: float = 0.95
    mode: str = "tuned"
    values: tuple[str, ...] | None = None
    tails: str | None = None
    categories: tuple[str, ...] | None = None
    quantiles: tuple[float, ...] | None = None
    user_windows: int | None = None
    user_delta: float = 0.0
    prediction: str | None = None
    user_epsilons: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimator", estimator_name(self.estimator))
        for name in ("lower", "upper", "values", "categories", "quantiles"):
            if isinstance(getattr(self, name), list):  # as a store keeps them
                object.__setattr__(self, name, tuple(getattr(self, name)))

        for name, value in _respelled(self).items():
            object.__setattr__(self, name, value)

        # Each value for itself; then what they mean together.
        require_epsilon(self.epsilon, least=LEAST_EPSILON)
        require_between(0, 1, level=self.level)
        require(self.mode in ("tuned", "paper"), "mode", "be 'tuned' or 'paper'", self.mode)
        estimator_class(self.estimator)  # it refuses a name that no one has
        users = self.users
        require(users is None or users >= 1, "users", "be at least 1", users)
        require(users is None or users <= MOST_USERS, "users", f"be at most {MOST_USERS:,}", users)

        if self.sizes == UNKNOWN_SIZES:
            for name in ("users", "between_users"):
                require(
                    getattr(self, name) is not None, name, "be declared with unknown sizes", None
                )

        rounds_rules.require_one_budget(self)
        rounds_rules.require_questions(self)
        rounds_rules.require_coordinates(self)
        rounds_rules.require_tails(self)
        lateness = self.allowed_lateness
        between = self.between_users
        budget = self.user_budget

        # Bounds that would make a window never end, or a budget mean nothing.
        rule = "be at least 0 and finite"
        require(math.isfinite(lateness) and lateness >= 0, "allowed_lateness", rule, lateness)
        require(
            between is None or (math.isfinite(between) and between >= 0),
            "between_users",
            rule,
            between,
        )

        if self.name is not None:
            require_name(self.name)

        require(
            budget is None or budget >= self.epsilon,
            "user_budget",
            f"be at least epsilon {self.epsilon:g}",
            budget,
        )

        # A horizon must be a number that can be counted.
        fits = budget is None or math.isfinite(budget / self.epsilon)
        require(
            fits, "user_budget", f"be a finite number of times epsilon ({self.epsilon!r})", budget
        )
        windows = self.windows

        # Sliding windows and sessions have no window before them.
        if windows.kind != "fixed":
            self.require_nothing_carried(
                f"with {windows.kind} windows", "they do not follow one another"
            )

        if self.prediction is not None:
            require(self.carries, "estimator", NO_SLOPE, self.estimator)

        object.__setattr__(self, "window", str(windows))
        overlap = windows.overlap

        # A sample in several windows costs epsilon in each.
        if overlap > 1:
            need = (
                f"be at least {overlap * self.epsilon:g} for sliding windows {self.window!r} (a sample is in {overlap} "
                f"windows, each costs epsilon {self.epsilon:g})"
            )
            shared = self.user_windows
            rule = f"be at least {overlap} for sliding windows {self.window!r}, as a sample is in"
            require(shared is None or shared >= overlap, "user_windows", rule, shared)
            require(
                self.horizon is not None and self.horizon >= overlap, "user_budget", need, budget
            )

    def __getstate__(self) -> dict[str, Any]:
        """Give the fields alone to another process, which derives the rest again."""
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}

    @cached_property
    def windows(self) -> Windows:
        """How event time is cut."""
        return Windows.parse(self.window)

    @cached_property
    def grid(self) -> Grid:
        """The grid on which values, or the features of values that the estimator sums up, are held."""
        # What a report is about: a category, a number, or features of a vector.
        if self.categories is not None:
            return CategoryGrid(len(self.categories))
        features = (
            getattr(self.estimator_for(1), "features", None)
            if hasattr(self._class, "features")
            else None
        )

        if features is None and self.values is None:
            return FixedPoint(float(self.ends[0]), float(self.ends[1]))
        lower, upper = map(np.atleast_1d, self.ends)
        return VectorGrid(lower, upper, features)

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """Lower and upper bound: of a value, or of each coordinate."""
        shape = () if self.values is None else (len(self.values),)
        lower, upper = (
            np.broadcast_to(np.asarray(x, np.float64), shape) for x in (self.lower, self.upper)
        )

        return lower, upper

    @property
    def one_mean(self) -> bool:
        """Whether the answer is one number, and not a vector, a density or a mixture."""
        return bool(self._class.answers == "mean")

    @property
    def _class(self) -> Any:
        return estimator_class(self.estimator)

    @property
    def carries(self) -> bool:
        """Whether a window is given what the last one's public results showed."""
        return bool(getattr(self._class, "carries", False))

    def require_nothing_carried(self, where: str, why: str = "") -> None:
        """Refuse an estimator that carries from window to window where windows are not answered one after the other."""
        rule = f"be one that carries nothing from window to window {where}" + (
            f" ({why})" if why else ""
        )
        require(not self.carries, "estimator", rule, self.estimator)

    def require_tables(self, *, prediction: bool = False, user_epsilons: bool = False) -> None:
        """Refuse a host without a public table of users that the settings name."""
        rule = "come with its table here, by the engine"
        given = {"prediction": prediction, "user_epsilons": user_epsilons}
        for name, has_table in given.items():
            column = getattr(self, name)
            require(has_table or column is None, name, rule, column)

    @property
    def horizon(self) -> int | None:
        """How many windows the budget of a user pays for; None if there is no limit."""
        if self.user_windows is not None:
            return self.user_windows
        if self.user_budget is None:
            return None

        # A budget that is a multiple of epsilon is not to be lost by rounding.
        return math.floor(self.user_budget / self.epsilon * (1 + 1e-12))

    @property
    def window_budget(self) -> WindowBudget | None:
        """The budget that a user's windows share; None where each window costs epsilon."""
        if self.user_windows is None:
            return None
        return WindowBudget(epsilon=self.epsilon, delta=self.user_delta, windows=self.user_windows)

    @property
    def window_epsilon(self) -> float:
        """Epsilon of one window by a mechanism that promises epsilon alone."""
        budget = self.window_budget
        return self.epsilon if budget is None else budget.each

    @property
    def gaussian(self) -> bool:
        """Whether a curator's sums have Gaussian noise, for a budget that windows share."""
        budget = self.window_budget
        return budget is not None and takes_gaussian_noise(self.estimator, budget)

    @property
    def window_budget_text(self) -> str | None:
        """Which noise keeps the budget that windows share, in words."""
        budget = self.window_budget
        gaussian = getattr(self._class, "takes_gaussian_noise", False)
        return None if budget is None else budget.said(gaussian=gaussian)

    def spent_epsilon(self, windows: Ints) -> Floats:
        """Total epsilon of users who took part in that many windows.

        A budget that windows share is spent with the first of them.
        """
        paid = np.minimum(windows, 1) if self.user_windows is not None else windows
        return np.asarray(paid * self.epsilon, np.float64)

    @property
    def central(self) -> bool:
        """Whether a trusted curator sees the samples and adds the noise, and not each user."""
        return bool(self._class.trust == "central")

    @property
    def unit(self) -> str:
        """Say in few words what epsilon is of."""
        if getattr(self._class, "privacy_unit", "user") == "sample":
            return f"one sample, in a window of {self.window}"
        if self.user_windows is not None:
            return f"one user's samples in {self.user_windows} windows of {self.window} together"
        return f"one user's samples in a window of {self.window}"

    @property
    def protected(self) -> str:
        """Say in one sentence what epsilon covers and what it does not, for anyone who sees epsilon."""
        if getattr(self._class, "privacy_unit", "user") == "sample":
            return "Each single sample is protected; a user with many samples is protected less."
        what = "All that one user sends within a window is protected together"

        if self.central and not getattr(self._class, "protects_sizes", True):
            what = "The values that one user sends within a window are protected together, their number is not"

        if self.user_windows is not None:
            together = what.replace("within a window", f"within {self.user_windows} windows")
            return f"{together}; its data does not enter later windows."

        return f"{what}; a user in several windows is protected less."

    @property
    def delta(self) -> float:
        """Of all that one user gives within a window, or within all windows that share a budget.

        0 but for some estimators of a trusted curator, and where it is declared.
        """
        if self.user_windows is not None:
            return self.user_delta

        # It does not hang on sizes, whose file may be gone when a budget is looked at.
        plain = replace(self, sizes=None)

        if self.central:
            return float(getattr(plain.estimator_for(self.users or 1), "delta", 0.0))
        return 0.0

    def plain(self) -> dict[str, Any]:
        """Give all settings as plain data, from which `of_plain` makes the same again.

        Most fields are left out at their defaults. The edition of the estimator's design is among
        the data: rounds of two designs have different ids and keys.
        """
        default = {
            # Settings at their defaults are left out, so that a new one changes no protocol before
            # it.
            setting.name: setting.default
            for setting in fields(self)
            if setting.name not in FIRST_FIELDS
        } | {"edition": 1}
        plain = {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self).items()}

        # A change of what an estimator does is another edition, and so another protocol.
        plain["estimator"] = str(self.estimator)  # the name alone of a class that was passed
        plain["edition"] = self._class.edition

        return {name: x for name, x in plain.items() if name not in default or x != default[name]}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Make the settings that `plain` gave."""
        return cls(**{name: value for name, value in plain.items() if name != "edition"})

    def require_user_privacy(self) -> None:
        """Refuse an estimator that protects single samples only, which exists for comparison, before anything runs."""
        unit = getattr(estimator_class(self.estimator), "privacy_unit", "user")
        require(
            unit == "user",
            "estimator",
            "protect users, not single samples (it can be simulated)",
            self.estimator,
        )

    def protocol(self) -> dict[str, Any]:
        """Give what the users' and the statistician's side must agree on, as plain data."""
        return {name: value for name, value in self.plain().items() if name not in HOST_ONLY}

    @cached_property
    def protocol_bytes(self) -> bytes:
        """The same as canonical bytes; made once, because each round needs them many times."""
        return canonical(self.protocol())

    @cached_property
    def protocol_hash(self) -> str:
        """SHA-256 of these bytes, in hexadecimal digits."""
        return hashlib.sha256(self.protocol_bytes).hexdigest()

    def digest(self) -> str:
        """Name the protocol: eight hexadecimal digits, of which no two protocols are likely to share all."""
        return self.protocol_hash[:8]

    def design_users(self, counted: int) -> int:
        """Tell for how many users the estimator of a window is designed, if that many take part."""
        if self.users is not None:
            return self.users

        # Numbers of users that are nearly equal share a design.
        unit = 10 ** max(len(str(counted)) - DIGITS, 0)
        return max(int(counted // unit * unit), design_least_users(self.protocol_bytes))

    def estimator_for(self, counted: int) -> Estimator:
        """Design the estimator for a window in which that many users take part.

        Remembered by the designed number.

        Raises
        ------
        ValueError
            If an option is out of range, or not one of the estimator's; of a curator's, if epsilon
            is so small that float64 would add more than a hundredth of it.
        """
        estimator = designed_estimator(self.protocol_bytes, self.design_users(counted))

        # Central noise has a numeric cost, which is refused here if it is too large.
        if is_central(estimator):
            central_numeric_cost(estimator, self.window_budget)

        return estimator


def _respelled(settings: RoundsSettings) -> dict[str, Any]:
    """Bring numbers to their types.

    One value has one spelling, because all of them are part of keys and ids.
    """
    rule = "be a dict of the estimator's options by their names"
    require(isinstance(settings.options, dict), "options", rule, settings.options)
    respelled: dict[str, Any] = {
        "options": {name: _number(value) for name, value in settings.options.items()}
    }
    for name in ("lower", "upper"):
        bound = getattr(settings, name)
        ends = tuple(
            valid_float(name, end) for end in (bound if isinstance(bound, tuple) else (bound,))
        )

        # Equal bounds of all coordinates are one number.
        one_for_all = (
            isinstance(bound, tuple)
            and len(ends) == len(settings.values or ())
            and len(set(ends)) == 1
        )
        respelled[name] = ends if isinstance(bound, tuple) and not one_for_all else ends[0]

    if settings.sizes is not None:
        respelled["sizes"] = SizeDistribution.respelled(str(settings.sizes))

    for name in (
        "epsilon",
        "user_delta",
        "level",
        "allowed_lateness",
        "between_users",
        "user_budget",
    ):
        value = getattr(settings, name)
        respelled[name] = value if value is None else valid_float(name, value)

    if settings.quantiles is not None:
        respelled["quantiles"] = tuple(valid_float("quantiles", end) for end in settings.quantiles)

    for name in ("users", "user_windows"):
        number = getattr(settings, name)
        respelled[name] = number if number is None else valid_int(name, number)

    return respelled


def _number(value: Any) -> Any:
    """Take NumPy's scalars for Python's, and a float that is whole for the whole number."""
    plain = value.item() if isinstance(value, np.generic) else value

    if isinstance(plain, float) and plain.is_integer():
        return int(plain)
    return plain


def settings_round_id(settings: RoundsSettings, window: Window) -> str:
    """Name a round: the deployment, its window and the protocol; stable over restarts and hosts.

    Examples
    --------
    >>> settings = RoundsSettings(lower=0, upper=1, epsilon=1.0, window="1d", estimator="one_shot", name="delays")
    >>> settings_round_id(settings, Window(0, 86_400_000_000)).rpartition("/")[0]
    'delays/1970-01-01T00:00:00Z/1970-01-02T00:00:00Z'
    """
    require(
        settings.name is not None, "name", "be given: it is part of each round's id", settings.name
    )
    return "/".join((str(settings.name), *window.iso(), settings.digest()))


def settings_round_noise(
    secret: bytes, settings: RoundsSettings, name: str, *, design: Mapping[str, Any] | None = None
) -> KeyedNoise:
    """Keyed noise of the reports of a round.

    Notes
    -----
    **Privacy.** Everything that shapes a report is in the key, and the deployment's name. Otherwise a second run with
    another epsilon, or another window of the same stage, would scale the same draws, and two reports would solve for
    the user's mean.
    """
    shaped = hashlib.sha256(canonical(design or {})).hexdigest()
    return KeyedNoise.of_judged_key(
        secret, deployment=settings.protocol_hash, purpose=f"round {name} {shaped}"
    )
