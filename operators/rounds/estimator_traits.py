"""What an estimator says of itself, so that nothing else needs to know its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol

ONE_LAW = "all users draw from one law"
DECLARED = "users' own means spread by at most the declared between_users"
TAILS = ("exponential",)
"""What may be declared of the tails of users' means."""

EACH_USER = "mean over users of each user's own mean: every user counts once"
OF_COORDINATES = f"{EACH_USER}; of each coordinate. The predicted error is in half widths, for all coordinates together"
LARGER_MORE = (
    "mean over users where larger users weigh more: that of each user's own mean only if a user's number of samples "
    "says nothing about its mean. It pays where it does not, and sizes are very unequal"
)
BOUNDS = "nothing: every user reports on the declared bounds"


class FamilyQuestion(Protocol):
    """Public: what is requested of vectors, densities or mixtures, as far as an estimator's options depend on it."""

    @property
    def wanted(self) -> str:
        """What is to be estimated: one of `EstimatorTraits.answers`."""

    @property
    def half(self) -> float:
        """Half the width of the bounds, in whose unit the others are."""

    @property
    def dimension(self) -> int | None:
        """Number of coordinates."""

    @property
    def sparsity(self) -> int | None:
        """Number of coordinates that may differ from the middle."""

    @property
    def radius(self) -> float | None:
        """Of the ball that holds every sample."""

    @property
    def smoothness(self) -> int | None:
        """Derivatives of a density."""

    @property
    def components(self) -> int | None:
        """Of a mixture."""

    @property
    def between_users(self) -> float | None:
        """Declared bound on the standard deviation of users' own means."""


class EstimatorTraits:
    """Base of the classes in the registry of estimators: what holds unless a class says otherwise.

    Attributes
    ----------
    answers : {"mean", "vector", "density", "mixture", "shares", "quantiles"}
        What the estimate is.
    estimand : str
        The same in words, for anyone who asks what is estimated.
    assumes : str
        What the interval assumes of the users.
    of_a_paper : bool
        Whether the assumption is the paper's.
    candidate : bool
        Whether `meanstream plan` compares it with the others.
    sizes_unknown : bool
        Whether it can ask the users for the law of their sizes.
    privacy_unit : {"user", "sample"}
        What is protected: everything that a user holds, or each sample alone.
    edition : int
        Number of its design: part of what parties agree on, so that they never mix two designs.
        Raise it with a change.
    carries : bool
        Whether a window is given what the last one's public results showed (`carrying`,
        `carried_after`).
    taken_for : str
        When it is the default: of one mean where "no search" for a narrower window pays, where the
        users' spread is "declared" or their "tails" are, or where everyone trusts a "curator"; for
        "categories" and for "quantiles"; "" for never.
    takes_gaussian_noise : bool
        Whether `over_windows` gives a curator's sums Gaussian noise, for a budget that several
        windows share.
    part : str
        What a half-width of a family's forecast is of.
    features_of : str
        What a stage asks a part of its users about, of those that answer several numbers.

    Notes
    -----
    **Privacy.** Nothing here depends on data.
    """

    answers: ClassVar[str] = "mean"
    estimand: ClassVar[str] = EACH_USER
    assumes: ClassVar[str] = ONE_LAW
    of_a_paper: ClassVar[bool] = True
    candidate: ClassVar[bool] = False
    sizes_unknown: ClassVar[bool] = False
    privacy_unit: ClassVar[str] = "user"
    edition: ClassVar[int] = 1
    carries: ClassVar[bool] = False
    taken_for: ClassVar[str] = ""
    takes_gaussian_noise: ClassVar[bool] = False
    part: ClassVar[str] = "coordinate"
    features_of: ClassVar[str] = "coordinates"

    @classmethod
    def candidate_options(cls, between_users: float | None, tails: str | None) -> dict[str, Any]:  # noqa: ARG003 - below
        """Options that a forecast builds it with, where the users' spread and tails are declared or not."""
        return {}

    @classmethod
    def simulated_options(cls, center: float, between_users: float) -> dict[str, Any]:  # noqa: ARG003 - as above
        """Options for a simulation, for a yardstick that knows the law; mostly none."""
        return {}

    @classmethod
    def family_options(cls, ask: FamilyQuestion) -> dict[str, Any] | None:  # noqa: ARG003 - for those that answer it
        """Options on [-1, 1] that answer a question about vectors, densities or mixtures.

        None where it does not.
        """
        return None

    @classmethod
    def parts(cls, ask: FamilyQuestion) -> int:
        """Count the numbers that an error is summed over: those that are not known to be 0."""
        return ask.dimension or ask.components or 1

    @classmethod
    def family_assumes(
        cls,
        ask: FamilyQuestion,  # noqa: ARG003 - for those whose assumption names numbers
        options: Mapping[str, Any],
        described: Mapping[str, Any],  # noqa: ARG003
    ) -> str:
        """Say what a forecast assumes of the users, given the options and what the estimator says of itself."""
        if options.get("between_users"):
            return DECLARED
        return ONE_LAW

    @classmethod
    def why(cls, options: Mapping[str, Any], radius: float | None) -> str:  # noqa: ARG003 - as above
        """Say why its error is the least of a family's, in words; "" where there is nothing to say."""
        return ""

    @classmethod
    def caution(cls, others: Collection[str]) -> str:  # noqa: ARG003 - as above
        """Say what is lost with it, where one of the others would not lose it; mostly nothing."""
        return ""

    def missed_mse(self, users: int) -> float:  # noqa: ARG002 - as above
        """Predict the mean squared error of what it does not find, which no standard error covers; mostly 0."""
        return 0.0

    def breaking_point(self) -> float | None:
        """Smallest spread of users' means that makes its interval miss, where a forecast warns of that."""
        return None

    def cut_back(self) -> str:
        """Say what happens to samples within the bounds that are out of the estimator's reach.

        Mostly nothing.
        """
        return ""
