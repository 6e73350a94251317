"""What a round has found so far, told to every part of it: by grouping, not as a side input.

Flink's runner (Beam 2.70) cannot make a checkpoint of a step with a side input: its job begins
again and again. So a step's elements and what is known of their round go, as bytes of their own
coders, to the same keys, and are grouped in the window that carries the round. The order within a
group is anyone's: what the steps make of it are exact sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.coders import Coder, typecoders
from apache_beam.pvalue import DoOutputsTuple
from apache_beam.transforms.window import TimestampedValue
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

import meanstream.pipelines.beam.rounds.rounds_coders as _coders  # noqa: F401 - coders register themselves
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.validation import require
from meanstream.pipelines.beam.rounds.rounds_coders import StageFindingsCoder, StageResultCoder
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ReportBatch,
    StageFindings,
    StageTally,
    UserBatch,
    join_user_records,
)
from meanstream.pipelines.beam.rounds.rounds_windows import MILLI, CarryRounds, carried_in_window
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.transform_outputs import typed_outputs
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_widths import Window

FINDINGS = "findings"
ESTIMATES = "estimates"
_ELEMENT = b"e"
_FINDINGS = b"f"
_RESULT = b"r"
_EITHER = tuple[int, bytes]

SMALL = 4000
"""Batches of fewer users share the first key of their round: a group costs a runner more than their
reports."""


class Spot(NamedTuple):
    """Where an element goes.

    The window of its round, a whole number, and how many users it holds.
    """

    window: Window
    number: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """To which keys a step's elements go: the most workers that can share a round.

    Attributes
    ----------
    kind : type
        Of the elements; it has a coder.
    spot : function
        From an element to its place, always the same.
    keys : int
        Numbers are taken modulo this.
    join : function, optional
        From elements at one key to fewer.
    """

    kind: Any
    spot: Callable[[Any], Spot]
    keys: int
    join: Callable[[list[Any]], list[Any]] | None = None


def known_users_by_shard(shards: int) -> Placing:
    """Private: batches of users at their shard, or together where they are small."""
    return Placing(kind=tuple[int, UserBatch], spot=_shard, keys=shards, join=_together)


def known_reports_by_shard(shards: int) -> Placing:
    """Public: batches of reports at the shard of their first user, or together where they are small."""
    return Placing(kind=ReportBatch, spot=_first_user, keys=shards)


def known_at_one_worker(kind: type) -> Placing:
    """Give few elements, a round at a time, to one worker."""
    return Placing(kind=kind, spot=_first, keys=1)


def known_shards(settings: RoundsSettings, shards: int) -> int:
    """Give the number of parts of a round.

    One where few users are declared, however many really come.
    """
    return 1 if settings.users is not None and settings.users < SMALL else shards


def known_round_key(window: Window, number: int = 0, keys: int = 1) -> int:
    """Name a group of a round.

    With the window in it a runner has few windows for a key, which it looks through.
    """
    return (window.end // MILLI * keys + number) % 2**62


class NeedsFindings(Step):
    """A step that makes nothing of elements whose round has found nothing, where findings are given to it."""


class WithFindings(beam.PTransform):  # type: ignore[misc]
    """Apply a DoFn to elements and to what their round has found: `process(element, findings)`.

    Parameters
    ----------
    dofn : DoFn
        With `process` and `setup`; without parameters of Beam's, and without anything at a bundle's
        ends.
    findings : PCollection of StageFindings, optional
        At most one per round; a round without them gives None.
    settings : RoundsSettings
        Which windows carry the rounds.
    placing : Placing
        What the elements are, and to which keys they go.
    out : type, optional
        What comes out. By default findings and estimates, as `known_findings_and_estimates` splits
        them.
    results : PCollection of StageResult, optional
        What a statistician has published: `process(element, findings, results)` gets those of the
        round, in an order that is the same for everyone. Without this and `findings`, `dofn` is
        applied as it is.
    """

    def __init__(
        self,
        dofn: beam.DoFn,
        findings: beam.PCollection | None,
        settings: RoundsSettings,
        placing: Placing,
        *,
        out: Any = None,
        results: beam.PCollection | None = None,
    ) -> None:
        super().__init__()
        self._dofn = dofn
        self._findings = findings
        self._settings = settings
        self._placing = placing
        self._out = out
        self._results = results

    def expand(
        self, pcoll: beam.PCollection
    ) -> beam.PCollection | tuple[beam.PCollection, beam.PCollection]:
        """Group a round's elements with what is known of it, then apply."""
        given = pcoll
        step = beam.ParDo(self._dofn)

        if self._findings is not None or self._results is not None:
            told = self._results is not None
            given = self._grouped(pcoll)
            step = beam.ParDo(_Apply(self._dofn, self._placing, results=told))

        if self._out is None:
            return known_findings_and_estimates(
                given | "Apply" >> step.with_outputs(FINDINGS, main=ESTIMATES)
            )

        return given | "Apply" >> step.with_output_types(self._out)

    def _grouped(self, pcoll: beam.PCollection) -> beam.PCollection:
        settings = self._settings
        keys = known_shards(self._settings, self._placing.keys)
        placing = replace(self._placing, keys=keys)
        elements = pcoll | "Elements" >> beam.ParDo(_ElementBytes(placing)).with_output_types(
            _EITHER
        )
        either = [elements | "Carry" >> CarryRounds(settings)]

        if self._findings is not None:
            findings = self._findings | "To all" >> beam.ParDo(
                _FindingsToAll(keys)
            ).with_output_types(_EITHER)
            either.append(findings | "Carry findings" >> CarryRounds(settings))

        if self._results is not None:
            to_all = beam.ParDo(_ResultsToAll(settings, keys)).with_output_types(_EITHER)
            results = self._results | "Results to all" >> to_all
            either.append(results | "Carry results" >> CarryRounds(settings))

        return either | "With findings" >> beam.Flatten() | "Of a round" >> beam.GroupByKey()


def known_findings_and_estimates(
    both: DoOutputsTuple, *, label: str = "Of"
) -> tuple[beam.PCollection, beam.PCollection]:
    """Public: what a step has found, at the tag `FINDINGS`, and the estimates that it has made."""
    findings, estimates = typed_outputs(
        both, {FINDINGS: StageFindings, ESTIMATES: WindowEstimate}, label=label
    )
    return findings, estimates


class _ElementBytes(Step):
    """Elements to their key."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing

    def setup(self) -> None:
        """Find the coder."""
        self._coder = _coder_of(self._placing.kind)

    def process(self, element: Any) -> Iterator[tuple[int, bytes]]:
        """Key one."""
        keys = self._placing.keys
        (window, number, size) = self._placing.spot(element)
        key = known_round_key(window, number % keys if size >= SMALL else 0, keys)
        yield key, _ELEMENT + self._coder.encode(element)


class _FindingsToAll(Step):
    """Public: findings to every key that their round may have; those of a small round to the first.

    The number of users is rounded down to two digits, by less than a tenth: a round of half of
    `SMALL` has no batch of `SMALL` users.
    """

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def process(self, element: StageFindings) -> Iterator[tuple[int, bytes]]:
        """Copy them."""
        encoded = _FINDINGS + StageFindingsCoder().encode(element)
        for number in range(self._keys if element.users >= SMALL // 2 else 1):
            yield known_round_key(element.window, number, self._keys), encoded


class _ResultsToAll(Step):
    """Public: results to every key, at the time of their round."""

    def __init__(self, settings: RoundsSettings, keys: int) -> None:
        self._settings = settings
        self._keys = keys

    def process(self, element: StageResult) -> Iterator[TimestampedValue]:
        """Copy them."""
        encoded = _RESULT + StageResultCoder().encode(element)
        window = Window.between(element.start, element.end)
        for number in range(self._keys):
            keyed = known_round_key(window, number, self._keys), encoded
            yield carried_in_window(self._settings, keyed, window)


class _Apply(Step):
    """The wrapped DoFn, element by element."""

    def __init__(self, dofn: beam.DoFn, placing: Placing, *, results: bool = False) -> None:
        self._dofn = dofn
        self._placing = placing
        self._results = results

    def setup(self) -> None:
        """Find the coder; let the wrapped one begin."""
        self._coder = _coder_of(self._placing.kind)
        self._dofn.setup()

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        """Apply it to the elements of a round."""
        sorts: dict[bytes, list[bytes]] = {_ELEMENT: [], _FINDINGS: [], _RESULT: []}
        for one in element[1]:
            sorts[one[:1]].append(one[1:])

        known = sorts[_FINDINGS]
        require(len(known) <= 1, "findings", "be given at most once for every round", len(known))
        told: list[Any] = [StageFindingsCoder().decode(known[0]) if known else None]
        if (
            self._results
        ):  # in one order: of two results of a stage, every worker and every retry takes the same
            told.append([StageResultCoder().decode(one) for one in sorted(sorts[_RESULT])])

        # Without findings the round has fewer stages than the pipeline.
        idle = not known and not self._results and isinstance(self._dofn, NeedsFindings)
        elements = [] if idle else [self._coder.decode(one) for one in sorts[_ELEMENT]]
        for one in elements if self._placing.join is None else self._placing.join(elements):
            yield from self._dofn.process(one, *told)


def _coder_of(kind: Any) -> Coder:
    return typecoders.registry.get_coder(convert_to_beam_type(kind))


def _shard(element: tuple[int, UserBatch]) -> Spot:
    return Spot(element[1].window, element[0], len(element[1]))


def _first_user(element: ReportBatch) -> Spot:
    if not len(element.names):
        return Spot(element.window, 0, 0)
    number = int(keyed_owner_words([element.names[0].as_py()])[0, 1] & np.uint64(2**63 - 1))
    return Spot(element.window, number, len(element.names))


def _first(element: StageTally | StageFindings | None) -> Spot:
    return Spot(Window(0, 0) if element is None else element.window, 0, 0)


def _together(elements: list[tuple[int, UserBatch]]) -> list[tuple[int, UserBatch]]:
    """Private: batches of different users of one round as one."""
    if len(elements) < 2:
        return elements
    return [(elements[0][0], join_user_records([batch for _, batch in elements]))]
