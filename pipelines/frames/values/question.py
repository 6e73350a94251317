"""The question of one call of `private_means`: its arguments, and what is refused before a row is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from meanstream.operators.collaboration.anytime_intervals import Coverage
from meanstream.operators.collaboration.registry import Collaboration
from meanstream.operators.validation import require
from meanstream.pipelines.frames.arguments import require_columns, require_numbers, require_texts
from meanstream.pipelines.frames.frame_columns import FrameSamples, frame_samples, key_columns
from meanstream.pipelines.frames.frame_levels import check_nested
from meanstream.pipelines.frames.rows_at_hand import Target
from meanstream.pipelines.frames.values.value_columns import (
    Bounds,
    missing_as_nulls,
    valid_statistics,
)
from meanstream.pipelines.frames.values.whole_persons import PersonLimits, valid_person_limits

CALLS = 12
"""Calls that the budget of a store is for, where the caller does not say: a year of months."""
_MINUTES = re.compile(r"every:\s*[\d.]+\s*m")


@dataclass(frozen=True, kw_only=True)
class MeansQuestion:
    """The arguments of one call; `private_means` says what each is.

    Attributes
    ----------
    settings : dict
        Further settings of `AgentsSettings`.
    """

    frame: Any
    by: str | Sequence[str]
    value: str | Sequence[str] | None
    lower: Bounds
    upper: Bounds
    epsilon: float | None
    delta: float
    odds: float | str | None
    ratio: Sequence[str] | None
    statistics: Sequence[str]
    time: str | None
    person: str | None
    per_person: int | None
    max_groups: int | str | None
    max_rows: int | None
    releases: int | None
    schedule: str | None
    collaboration: str | Collaboration
    target: Target
    level: float
    coverage: Coverage
    quantiles: Sequence[float]
    exceeds: Sequence[float]
    covariates: Any
    nested: bool
    nulls: str | None
    missing: Sequence[float]
    private_counts: bool
    groups: Sequence[Any] | None
    secret: str | bytes | None
    name: str | None
    store: str | Path | None
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        require_numbers(lower=self.lower, upper=self.upper, epsilon=self.epsilon, delta=self.delta)

    @property
    def column(self) -> str:
        """Name of the one column of values."""
        assert isinstance(self.value, str)  # noqa: S101 - where one is asked for
        return self.value

    @property
    def budget(self) -> float:
        """Epsilon where it is the promise; settings refuse a call without a promise."""
        return cast("float", self.epsilon)

    @property
    def keys(self) -> list[str]:
        """Names of the columns of groups."""
        return key_columns(self.by)

    @property
    def other_columns(self) -> list[str]:
        """Names of the columns beside the values: keys, time, person, and covariates that are columns."""
        covariates = self.covariates
        names = [*self.keys, *(name for name in (self.time, self.person) if name is not None)]
        if isinstance(covariates, str):
            names.append(covariates)
        elif isinstance(covariates, Sequence) and all(isinstance(n, str) for n in covariates):
            names += covariates

        return [*dict.fromkeys(names)]

    @property
    def limits(self) -> PersonLimits | None:
        """How much one person gives to all groups together; None where that has no limit."""
        return valid_person_limits(
            self.max_groups,
            self.max_rows,
            person=self.person,
            per_person=self.per_person,
            odds=self.odds,
            store=self.store,
        )

    @property
    def is_of_several_columns(self) -> bool:
        """Whether columns, or values and their squares, share the budget."""
        several = self.ratio is not None or not isinstance(self.value, str)
        return several or "variance" in self.statistics

    @property
    def horizon(self) -> int:
        """Releases of a group that share the budget."""
        usual = 1 if self.store is None else CALLS
        return usual if self.releases is None else self.releases

    def check(self) -> None:
        """Refuse arguments that do not go together, where groups are public."""
        require_columns("by", self.by)
        schedule = self.schedule
        rule = "be given with schedule, which releases on the way: the order of the rows is private"
        require(schedule is None or isinstance(schedule, str), "schedule", "be text", schedule)
        require(schedule is None or self.time is not None, "time", rule, self.time)

        limited = self.limits is not None or self.per_person is not None
        rule = "be given together with per_person, or max_groups and max_rows"
        require((self.person is not None) == limited, "person", rule, self.person)

        texts = {"time": self.time, "person": self.person}
        require_texts(**{name: text for name, text in texts.items() if text is not None})
        rule = "be the path of a file"
        store = self.store
        require(store is None or isinstance(store, str | Path), "store", rule, store)
        valid_statistics(self.statistics)
        check_nested(
            self.nested,
            self.by,
            self.collaboration,
            coverage=self.coverage,
            covariates=self.covariates,
        )

    def check_releases(self) -> None:
        """Refuse a number of releases that cannot be made, and a schedule that is not what it seems."""
        horizon = self.horizon
        rule = "be a whole number of at least 1"
        require(isinstance(horizon, int) and horizon >= 1, "releases", rule, horizon)

        several = self.store is not None or self.schedule is not None
        rule = (
            "be 1 without a store or a schedule: one call releases once, and the rest of the "
            "budget is lost"
        )
        require(several or horizon == 1, "releases", rule, horizon)

        minutes = self.schedule is not None and _MINUTES.fullmatch(self.schedule) is not None
        rule = (
            "name minutes as min (every:1min), since m reads like month; for months call once a "
            "month with a store"
        )
        require(not minutes, "schedule", rule, self.schedule)

    def samples(self) -> FrameSamples:
        """Private: the rows that the means of one column are of."""
        frame = missing_as_nulls(self.frame, [self.column], self.missing, self.other_columns)
        return frame_samples(
            frame,
            by=self.by,
            value=self.column,
            time=self.time,
            person=self.person,
            nulls="refuse" if self.nulls is None else self.nulls,
        )

    def check_target(self, shares: Sequence[str]) -> None:
        """Refuse what the mean of the rows at hand does not have; `shares` are columns of shares."""
        target = self.target
        require(target in ("population", "rows"), "target", "be 'population' or 'rows'", target)

        others = {
            "store": self.store is not None,
            "schedule": self.schedule is not None,
            "nested": self.nested,
            "quantiles or exceeds": bool(shares),
        }
        for option, is_given in others.items():
            rule = f"be 'population' with {option}: rows at hand have one release and a mean"
            require(target == "population" or not is_given, "target", rule, target)
