"""At most K groups of a person and c rows in each: what one person gives to all groups together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.draw_owners import PERSON_ROWS
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words
from meanstream.operators.records import AnyInts, Bools, Ints, Words
from meanstream.operators.validation import require, valid_int
from meanstream.pipelines.frames.budget_shares import epsilon_of_each
from meanstream.pipelines.frames.frame_columns import FrameSamples

PURPOSE = "whole persons"
MOST_GROUPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonLimits:
    """How much one person gives to all groups together.

    Attributes
    ----------
    max_groups, max_rows : int
        Groups in which a person's rows count, and how many of them in each.
    """

    max_groups: int
    max_rows: int

    def settings(self, make: Callable[[float], AgentsSettings], epsilon: float) -> AgentsSettings:
        """Give settings of one group with which all groups of a person together have `epsilon`.

        Notes
        -----
        **Privacy.** Where all of a person's rows change, at most `max_groups` sums change, each by at most `max_rows`
        spans: in the l1 norm by the product of both, in the l2 norm by `max_rows sqrt(max_groups)` spans.
        """
        chosen = make(epsilon_of_each(make, self.max_groups, epsilon))
        if chosen.epsilon_over(self.max_groups) > epsilon:
            raise AssertionError("the groups of a person must have the budget together")
        return chosen

    def sentence(self, epsilon: float, delta: float, person: str, left_out: int) -> str:
        """Say what is protected."""
        return (
            f"({epsilon:g}, {delta:g})-differentially private towards all rows of one person "
            f"(column {person!r}) in all groups together; at most {self.max_groups} groups of a "
            f"person and {self.max_rows} rows in each count, drawn by a secret key: "
            f"{left_out:,} rows do not; public: which groups there are, how many rows they have "
            "and whose these are"
        )


def valid_person_limits(
    max_groups: int | str | None, max_rows: int | None, **others: Any
) -> PersonLimits | None:
    """Give the limits of a person, if some are declared; refuse what does not go with them."""
    if max_groups is None and max_rows is None:
        return None
    both = max_groups is not None and max_rows is not None
    require(both, "max_groups", "be given together with max_rows", max_groups)
    require(others["person"] is not None, "person", "be given with max_groups", None)

    per_person = others["per_person"]
    require(
        per_person is None, "per_person", "be left out with max_groups and max_rows", per_person
    )

    odds = others["odds"]
    require(
        odds is None, "odds", "be left out with max_groups: groups of a person share epsilon", odds
    )
    rule = (
        "be left out with max_groups: a later group of a person could replace one that was released"
    )
    require(others["store"] is None, "store", rule, str(others["store"]))

    groups = valid_int("max_groups", max_groups)
    rows = valid_int("max_rows", max_rows)
    require(1 <= groups <= MOST_GROUPS, "max_groups", f"be from 1 to {MOST_GROUPS:,}", groups)
    require(rows >= 1, "max_rows", "be at least 1", rows)

    return PersonLimits(max_groups=groups, max_rows=rows)


def samples_within_limits(
    samples: FrameSamples, limits: PersonLimits, noise: KeyedNoise
) -> FrameSamples:
    """Private: keep the rows that count, which a keyed hash draws.

    Notes
    -----
    **Privacy.** A person's groups are drawn by the person and the group alone. Among the rows in a group those count
    whose content has the least keyed hashes, so the order of the rows says nothing. How many count is public, and no
    one else's rows depend on a person's values.
    """
    if samples.person is None or not len(samples.group):
        return samples

    keyed = noise.derived(PURPOSE, {"max_groups": limits.max_groups, "max_rows": limits.max_rows})
    pair = samples.person.astype(np.int64) * len(samples.names) + samples.group
    _, first_row, of_row = np.unique(pair, return_index=True, return_inverse=True)
    groups, rows = _draws(keyed, samples)

    is_chosen = _least(samples.person[first_row], groups[first_row], limits.max_groups)
    counts = is_chosen[of_row] & _least(of_row, rows, limits.max_rows)
    counted = replace(
        samples,
        group=samples.group[counts],
        value=samples.value[counts],
        time=None if samples.time is None else samples.time[counts],
        person=samples.person[counts],
    )

    empty = np.setdiff1d(np.arange(len(samples.names)), counted.group)
    return counted.without_groups({samples.names[number] for number in empty.tolist()})


def _draws(keyed: KeyedNoise, samples: FrameSamples) -> tuple[Words, Words]:
    """Private: hash the person and the group of each row, and all of its content."""
    owner = keyed_owner_words(samples.names).reshape(-1, 2)[samples.group]
    person = samples.person_hashes()
    assert person is not None  # noqa: S101 - for the type
    parts: list[Words] = [person, (samples.value + 0.0).view(np.uint64)]

    if samples.time is not None:
        parts.append((samples.time + 0.0).view(np.uint64))

    digest = np.zeros(len(samples.group), np.uint64)
    digests: list[Words] = []
    for number, words in enumerate(parts):
        index: Ints = np.full(len(digest), number, np.int64)
        digest = keyed.bits(NoiseIds(owner, index, digest ^ words), PERSON_ROWS.at())[:, 0]
        digests.append(digest)

    return digests[0], digests[-1]


def _least(of: AnyInts, draw: Words, most: int) -> Bools:
    """Say which entries are among the first ones of their owner, by their draws."""
    order = np.lexsort((draw, of))
    ordered = of[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rank = np.arange(len(of)) - np.repeat(begins, np.diff(begins, append=len(of)))
    chosen = np.empty(len(of), np.bool_)
    chosen[order] = rank < most

    return chosen
