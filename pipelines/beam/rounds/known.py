"""What a round has found so far, told to every part of it: by grouping, not as a side input.

Flink's runner (Beam 2.70) cannot make a checkpoint of a step with a side input: its job begins again and again. So a
step's elements and the findings of their round go, as bytes of their own coders, to the same keys, and are grouped in
the window that carries the round. The order within a group is anybody's: what the steps make of it are exact sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import Coder, typecoders
from apache_beam.typehints.decorators import IOTypeHints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

import pipelines.beam.rounds.coders as _coders  # noqa: F401 - coders register themselves
from operators.noise import owner_words
from operators.validation import require
from pipelines.beam.rounds.coders import StageFindingsCoder
from pipelines.beam.rounds.records import ReportBatch, StageFindings, UserBatch
from pipelines.beam.rounds.windows import CarryRounds
from streaming.rounds.settings import RoundsSettings

_ELEMENT, _FINDINGS = b"e", b"f"
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


def users_by_shard(shards: int) -> Placing:
    """Private: batches of users at their shard."""
    return Placing(kind=tuple[int, UserBatch], key=_shard, keys=shards)


def reports_by_shard(shards: int) -> Placing:
    """Public: batches of reports at the shard of their first user."""
    return Placing(kind=ReportBatch, key=_first_user, keys=shards)


def together(kind: type) -> Placing:
    """Give few elements, a round at a time, to one worker."""
    return Placing(kind=kind, key=_nothing, keys=1)


class WithFindings(beam.PTransform):  # type: ignore[misc]
    """Apply a DoFn to elements and to what their round has found: `process(element, *others, findings)`.

    Parameters
    ----------
    dofn : DoFn
        With `process` and `setup`; without parameters of Beam's, and without anything at a bundle's ends.
    findings : PCollection of StageFindings, optional
        At most one per round; a round without them gives None. Without the collection, `dofn` is applied as it is.
    settings : RoundsSettings
        Which windows carry the rounds.
    placing : Placing
        What the elements are, and to which keys they go.
    out : type
        What comes out.
    others : tuple
        Further arguments of `process`, before the findings.
    """

    def __init__(
        self,
        dofn: beam.DoFn,
        findings: beam.PCollection | None,
        settings: RoundsSettings,
        placing: Placing,
        *,
        out: Any,
        others: tuple[Any, ...] = (),
    ) -> None:
        super().__init__()
        self._dofn = dofn
        self._findings = findings
        self._settings = settings
        self._placing = placing
        self._out = out
        self._others = others

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Group a round's elements with its findings."""
        settings, placing, known = self._settings, self._placing, self._findings
        if known is None:
            return pcoll | "Apply" >> beam.ParDo(self._dofn, *self._others).with_output_types(self._out)
        elements = pcoll | "Elements" >> beam.ParDo(_ElementBytes(placing)).with_output_types(_EITHER)
        findings = known | "To all" >> beam.ParDo(_FindingsToAll(placing.keys)).with_output_types(_EITHER)
        apply = beam.ParDo(_Apply(self._dofn, placing.kind), *self._others)
        return (
            (elements | "Carry" >> CarryRounds(settings), findings | "Carry findings" >> CarryRounds(settings))
            | "With findings" >> beam.Flatten()
            | "Of a round" >> beam.GroupByKey()
            | "Apply" >> apply.with_output_types(self._out)
        )


class _ElementBytes(beam.DoFn):  # type: ignore[misc]
    """Elements to their key."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing

    def setup(self) -> None:
        """Find the coder."""
        self._coder = _coder_of(self._placing.kind)

    def process(self, element: Any) -> Iterator[tuple[int, bytes]]:
        """Key one."""
        yield self._placing.key(element) % self._placing.keys, _ELEMENT + self._coder.encode(element)


class _FindingsToAll(beam.DoFn):  # type: ignore[misc]
    """Public: findings to every key."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def process(self, element: StageFindings) -> Iterator[tuple[int, bytes]]:
        """Copy them."""
        encoded = _FINDINGS + StageFindingsCoder().encode(element)
        for key in range(self._keys):
            yield key, encoded


class _Apply(beam.DoFn):  # type: ignore[misc]
    """The wrapped DoFn, element by element."""

    def __init__(self, dofn: beam.DoFn, kind: Any) -> None:
        self._dofn = dofn
        self._kind = kind

    def default_type_hints(self) -> IOTypeHints:
        """Give none: Beam takes the hint of `others` for that of each."""
        return IOTypeHints.empty()

    def setup(self) -> None:
        """Find the coder; let the wrapped one begin."""
        self._coder = _coder_of(self._kind)
        self._dofn.setup()

    def process(self, element: tuple[int, Iterable[bytes]], *others: Any) -> Iterator[Any]:
        """Apply it to the elements of a round."""
        either = list(element[1])
        known = [one for one in either if one[:1] == _FINDINGS]
        require(len(known) <= 1, "findings", "be given at most once for every round", len(known))
        findings = StageFindingsCoder().decode(known[0][1:]) if known else None
        for one in either:
            if one[:1] == _ELEMENT:
                yield from self._dofn.process(self._coder.decode(one[1:]), *others, findings)


def _coder_of(kind: Any) -> Coder:
    return typecoders.registry.get_coder(convert_to_beam_type(kind))


def _shard(element: tuple[int, UserBatch]) -> int:
    return element[0]


def _first_user(element: ReportBatch) -> int:
    if not len(element.names):
        return 0
    return int(owner_words([element.names[0].as_py()])[0, 1] & np.uint64(2**63 - 1))


def _nothing(_element: Any) -> int:
    return 0
