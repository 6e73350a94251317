"""Means of one column whose bounds nobody knows: a part of epsilon finds them first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from meanstream.operators.agents.defaults import percent_of_guesses
from meanstream.operators.noise.group_privacy import GROUPS, odds_of_a_guess
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Ints
from meanstream.operators.validation import require, require_epsilon, valid_float
from meanstream.pipelines.frames.arguments import frame_key
from meanstream.pipelines.frames.frame_columns import FrameSamples
from meanstream.pipelines.frames.frame_reader import frame_columns
from meanstream.pipelines.frames.frame_releases import CALLS
from meanstream.pipelines.frames.frame_result import PrivateMeans
from meanstream.pipelines.frames.values.learned_bounds import (
    best_bounds,
    noisy_magnitudes,
    row_weights,
)
from meanstream.pipelines.frames.values.question import MeansQuestion
from meanstream.pipelines.frames.values.several_means import SeveralMeans
from meanstream.pipelines.frames.values.value_columns import is_number
from meanstream.pipelines.frames.values.whole_persons import samples_within_limits
from meanstream.streaming.store.secret_source import noise_from_secret

if TYPE_CHECKING:
    from meanstream.pipelines.frames.explanation import FramePromise

LEAST_SHARE, MOST_SHARE = 0.02, 0.1
ENOUGH = 1_000.0
"""Rows times epsilon of the bounds that find them well."""
LARGE = 10_000.0
"""Rows of a median group, times epsilon, whose means can spare all of epsilon for bounds."""
FEWEST = 300.0
"""Rows times epsilon of the call, below which nothing is found."""
WAYS_OUT = {
    "odds": "give epsilon, which bounds and means share",
    "per_person": "max_groups= and max_rows= say how much of a person counts",
    "store": "a call without one learns them once, and `found.settings` has them for all others",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LearnedBoundMeans(PrivateMeans):
    """Private means within bounds that were learned; `settings` are those of the means alone.

    Attributes
    ----------
    epsilon : float
        Of bounds and means together.
    """

    epsilon: float

    @property
    def bounds_epsilon(self) -> float:
        """Part of epsilon that the bounds have cost."""
        return self.epsilon - self.settings.epsilon

    def _promise(self) -> FramePromise:
        """The same as of other means, with what bounds and means cost together."""
        from meanstream.pipelines.frames.explanation import odds_in_words, several_part

        promise = super()._promise()
        unit = "one row's value" if self.person is None else "the rows of one person"
        share = odds_of_a_guess(self.epsilon, self.settings.delta)
        several = None
        if self.settings.per_person is None:
            rows = [(f"{k} rows of one person", self._strength(k)) for k in GROUPS]
            several = several_part("A person with several rows", rows)

        return replace(
            promise,
            odds=odds_in_words(unit, "bounds and releases", share),
            several=several,
            settings=[("epsilon in all", f"{self.epsilon:g}"), *promise.settings],
        )

    def _strength(self, rows: int) -> str:
        """Epsilon of several rows: that of the means, and as many times that of the bounds."""
        from meanstream.pipelines.frames.explanation import strength_in_words

        epsilon = self.settings.epsilon_for(rows) + rows * self.bounds_epsilon
        return strength_in_words(epsilon, odds_of_a_guess(epsilon, self.settings.delta))


def needs_bounds(question: MeansQuestion) -> bool:
    """Whether nobody knows the bounds of one column of numbers; true and false have them by themselves."""
    value = question.value
    if question.lower is not None or question.upper is not None or not isinstance(value, str):
        return False

    table = frame_columns(question.frame, [], option="value", needed=[value])
    return is_number(table.schema.field(value).type)


def with_learned_bounds(question: MeansQuestion) -> MeansQuestion:
    """The question of the means, with bounds that a part of epsilon has found and the rest of epsilon.

    Notes
    -----
    **Privacy.** Bounds are chosen by a noisy histogram and public numbers of rows. Histogram and
    means are two mechanisms about the same rows, whose epsilons add up.
    """
    epsilon = _checked_epsilon(question)

    # One key for both; that of a call without a secret is not kept.
    samples = question.samples()
    key, deployment = frame_key(question.secret, question.name)
    rule = f"be given: {len(samples.group):,} rows are too few to learn bounds at this epsilon"
    require(len(samples.group) * epsilon >= FEWEST, "lower", rule, None)

    share = epsilon * bounds_share(np.bincount(samples.group), epsilon)
    noise = noise_from_secret(key, deployment)
    lower, upper = _learned(samples, question, (share, epsilon - share), noise)

    # The means, as anyone would ask for them who knows the bounds.
    return replace(
        question,
        lower=lower,
        upper=upper,
        epsilon=epsilon - share,
        secret=key,
        name=deployment,
    )


def learned_bound_means(
    result: PrivateMeans | SeveralMeans, question: MeansQuestion
) -> LearnedBoundMeans:
    """The result of the means, which says what bounds and means cost together."""
    assert isinstance(result, PrivateMeans)  # noqa: S101 - of one column
    epsilon = valid_float("epsilon", question.epsilon)
    columns = {name: getattr(result, name) for name in PrivateMeans.__dataclass_fields__}
    columns["notes"] = _notes(result, epsilon)
    return LearnedBoundMeans(epsilon=epsilon, **columns)


def _checked_epsilon(question: MeansQuestion) -> float:
    """Refuse what does not go with bounds that are learned, and give epsilon."""
    for name, way in WAYS_OUT.items():
        rule = f"be left out where bounds are learned: {way}"
        value = getattr(question, name)
        require(value is None, name, rule, value if isinstance(value, int) else str(value))

    require(question.epsilon is not None, "epsilon", "be given where bounds are learned", None)
    epsilon = valid_float("epsilon", question.epsilon)
    require_epsilon(epsilon)

    return epsilon


def bounds_share(sizes: Ints, epsilon: float) -> float:
    """Give the part of epsilon for bounds that fits a frame, by public numbers of rows.

    Few rows need more. So do large groups, whose means have little noise: there, what bounds cut
    off matters more.

    Examples
    --------
    >>> [bounds_share(np.full(groups, n), 1.0) for groups, n in ((20, 100), (300, 100), (9, 20_000))]
    [0.1, 0.033, 0.1]
    """
    rows = float(sizes.sum())
    median = float(np.median(sizes[sizes > 0]))
    needed = max(ENOUGH / (rows * epsilon), median * epsilon / LARGE)
    return min(MOST_SHARE, max(round(needed, 3), LEAST_SHARE))


def _learned(
    samples: FrameSamples,
    question: MeansQuestion,
    epsilons: tuple[float, float],
    noise: KeyedNoise,
) -> tuple[float, float]:
    """Release the histogram of the rows that count, and choose bounds by it.

    `epsilons` are those of the histogram and of the means.
    """
    of_bounds, of_means = epsilons

    # Of a person with limits the same rows count as in the means.
    limits = question.limits
    units = 1
    if limits is not None:
        samples = samples_within_limits(samples, limits, noise)
        units = limits.max_groups * limits.max_rows

    # Rows of large groups count less, as each group is one mean.
    sizes = np.bincount(samples.group, minlength=len(samples.names))
    weight = row_weights(np.maximum(sizes, 1), of_bounds / units)[samples.group]
    counts, edges = noisy_magnitudes(
        samples.value, weight, epsilon=of_bounds, units=units, source=noise
    )

    return best_bounds(counts, edges, sizes[sizes > 0], epsilon=of_means / units)


def _notes(result: PrivateMeans, epsilon: float) -> tuple[str, ...]:
    """Say what bounds and means promise together, and what the bounds are."""
    settings = result.settings
    protected = result.notes[0].partition("-differentially private ")[2]
    costs = ", ".join(_cost_of_calls(calls, epsilon, settings.delta) for calls in CALLS)
    learned = (
        f"The bounds [{settings.lower:g}, {settings.upper:g}] were learned by a noisy histogram, "
        "which has cost a part of epsilon"
    )
    odds = percent_of_guesses(odds_of_a_guess(epsilon, settings.delta))

    # Sentences of the means alone give way to those of means and bounds together.
    guarantee = f"({epsilon:g}, {settings.delta:g})-differentially private {protected}"
    notes = [guarantee, learned]
    for note in result.notes[1:]:
        if note.startswith("No ledger counts this call"):
            notes.append(f"No ledger counts this call: together {costs} at most")
        elif note.startswith("Noise by "):
            notes.append(f"{note}. With the bounds someone guesses right at most {odds}")
        else:
            notes.append(note)

    return tuple(notes)


def _cost_of_calls(calls: int, epsilon: float, delta: float) -> str:
    """Say what several calls cost together, by basic composition."""
    cost = f"{calls} calls are epsilon {calls * epsilon:g}"
    if delta:
        return f"{cost} and delta {calls * delta:g}"
    return cost
