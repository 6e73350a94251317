"""What a round has found so far, told to every part of it: by grouping, not as a side input.

Flink's runner (Beam 2.70) cannot make a checkpoint of a step with a side input: its job begins again and again. So a
step's elements and what is known of their round go, as bytes of their own coders, to the same keys, and are grouped in
the window that carries the round. The order within a group is anyone's: what the steps make of it are exact sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

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
from meanstream.pipelines.beam.rounds.rounds_elements import ReportBatch, StageFindings, UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import CarryRounds, carried_in_window
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.transform_outputs import typed_outputs
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_widths import Window

FINDINGS, ESTIMATES = "findings", "estimates"
_ELEMENT, _FINDINGS, _RESULT = b"e", b"f", b"r"
_EITHER = tuple[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """To which keys a step's elements go: the most workers that can share a round.

    Attributes
    ----------
    kind : type
        Of the elements; it has a coder.
    key : function
        From an element to a whole number, always the same.
    keys : int
        Numbers are taken modulo this.
    """

    kind: Any
    key: Callable[[Any], int]
    keys: int


def known_users_by_shard(shards: int) -> Placing:
    """Private: batches of users at their shard."""
    return Placing(kind=tuple[int, UserBatch], key=_shard, keys=shards)


def known_reports_by_shard(shards: int) -> Placing:
    """Public: batches of reports at the shard of their first user."""
    return Placing(kind=ReportBatch, key=_first_user, keys=shards)


def known_at_one_worker(kind: type) -> Placing:
    """Give few elements, a round at a time, to one worker."""
    return Placing(kind=kind, key=_nothing, keys=1)


class WithFindings(beam.PTransform):  # type: ignore[misc]
    """Apply a DoFn to elements and to what their round has found: `process(element, findings)`.

    Parameters
    ----------
    dofn : DoFn
        With `process` and `setup`; without parameters of Beam's, and without anything at a bundle's ends.
    findings : PCollection of StageFindings, optional
        At most one per round; a round without them gives None.
    settings : RoundsSettings
        Which windows carry the rounds.
    placing : Placing
        What the elements are, and to which keys they go.
    out : type, optional
        What comes out. By default findings and estimates, as `known_findings_and_estimates` splits them.
    results : PCollection of StageResult, optional
        What a statistician has published: `process(element, findings, results)` gets those of the round, in an order
        that is the same for everyone. Without this and `findings`, `dofn` is applied as it is.
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

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection | tuple[beam.PCollection, beam.PCollection]:
        """Group a round's elements with what is known of it, then apply."""
        given, step = pcoll, beam.ParDo(self._dofn)
        if self._findings is not None or self._results is not None:
            told = self._results is not None
            given, step = self._grouped(pcoll), beam.ParDo(_Apply(self._dofn, self._placing.kind, results=told))
        if self._out is None:
            return known_findings_and_estimates(given | "Apply" >> step.with_outputs(FINDINGS, main=ESTIMATES))
        return given | "Apply" >> step.with_output_types(self._out)

    def _grouped(self, pcoll: beam.PCollection) -> beam.PCollection:
        settings, keys = self._settings, self._placing.keys
        elements = pcoll | "Elements" >> beam.ParDo(_ElementBytes(self._placing)).with_output_types(_EITHER)
        either = [elements | "Carry" >> CarryRounds(settings)]
        if self._findings is not None:
            findings = self._findings | "To all" >> beam.ParDo(_FindingsToAll(keys)).with_output_types(_EITHER)
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
    findings, estimates = typed_outputs(both, {FINDINGS: StageFindings, ESTIMATES: WindowEstimate}, label=label)
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
        yield self._placing.key(element) % self._placing.keys, _ELEMENT + self._coder.encode(element)


class _FindingsToAll(Step):
    """Public: findings to every key."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def process(self, element: StageFindings) -> Iterator[tuple[int, bytes]]:
        """Copy them."""
        encoded = _FINDINGS + StageFindingsCoder().encode(element)
        for key in range(self._keys):
            yield key, encoded


class _ResultsToAll(Step):
    """Public: results to every key, at the time of their round."""

    def __init__(self, settings: RoundsSettings, keys: int) -> None:
        self._settings = settings
        self._keys = keys

    def process(self, element: StageResult) -> Iterator[TimestampedValue]:
        """Copy them."""
        encoded = _RESULT + StageResultCoder().encode(element)
        for key in range(self._keys):
            yield carried_in_window(self._settings, (key, encoded), Window.between(element.start, element.end))


class _Apply(Step):
    """The wrapped DoFn, element by element."""

    def __init__(self, dofn: beam.DoFn, kind: Any, *, results: bool = False) -> None:
        self._dofn = dofn
        self._kind = kind
        self._results = results

    def setup(self) -> None:
        """Find the coder; let the wrapped one begin."""
        self._coder = _coder_of(self._kind)
        self._dofn.setup()

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        """Apply it to the elements of a round."""
        sorts: dict[bytes, list[bytes]] = {_ELEMENT: [], _FINDINGS: [], _RESULT: []}
        for one in element[1]:
            sorts[one[:1]].append(one[1:])
        known = sorts[_FINDINGS]
        require(len(known) <= 1, "findings", "be given at most once for every round", len(known))
        told: list[Any] = [StageFindingsCoder().decode(known[0]) if known else None]
        if self._results:  # in one order: of two results of a stage, every worker and every retry takes the same
            told.append([StageResultCoder().decode(one) for one in sorted(sorts[_RESULT])])
        for one in sorts[_ELEMENT]:
            yield from self._dofn.process(self._coder.decode(one), *told)


def _coder_of(kind: Any) -> Coder:
    return typecoders.registry.get_coder(convert_to_beam_type(kind))


def _shard(element: tuple[int, UserBatch]) -> int:
    return element[0]


def _first_user(element: ReportBatch) -> int:
    if not len(element.names):
        return 0
    return int(keyed_owner_words([element.names[0].as_py()])[0, 1] & np.uint64(2**63 - 1))


def _nothing(_element: Any) -> int:
    return 0
