"""Records of a format to samples, wherever they come from.

Many at once, and where that fails bad ones by halving.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.events.event_columns import Rejects, SampleColumns, concatenate_columns
from meanstream.streaming.sources.decode import Decoder, RawColumns
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import ColumnMapping

LEAF = 32
"""So few records are parsed one by one."""

Parsed = tuple[RawColumns, Ints]
"""Columns of some records, and the position of each."""

Texts = dict[str, bytes | None]
"""The text of each part of one record."""


class RecordFormat(Protocol):
    """How records are written."""

    def stands_out(self, block: LineBlock) -> Bools | None:
        """Say which records could change how others next to them are read: they are parsed alone.

        None if none is.
        """

    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:
        """Parse many records at once, none of which stands out.

        `ArrowInvalid` if that is impossible, and then nothing was rejected.
        """

    def parse_record(self, record: bytes) -> Texts | str:
        """Parse one record to the text of each part, or say the reason why not."""


@dataclass(slots=True)
class _Loose:
    """Records that were parsed one by one."""

    number: list[int] = field(default_factory=list)
    rows: list[Texts] = field(default_factory=list)

    def columns(self) -> Parsed:
        raw = {
            part: pa.array([row[part] for row in self.rows], pa.binary()) for part in self.rows[0]
        }
        return raw, np.array(self.number, np.int64)


class RecordParser:
    """Turns blocks of records of one source into samples; keeps the source's directory of agents.

    Parameters
    ----------
    form : RecordFormat
        How the records are written.
    mapping : ColumnMapping
        Which column means what.
    id_key : bytes
        Secret key of the hash of ids.
    decoder : Decoder, optional
        Shared with the parsers of other formats of the same source.
    """

    def __init__(
        self,
        form: RecordFormat,
        mapping: ColumnMapping,
        *,
        id_key: bytes = b"",
        decoder: Decoder | None = None,
    ) -> None:
        self._form = form
        self._decoder = decoder or Decoder(mapping, id_key=id_key)

    def parse(
        self, block: LineBlock, rejects: Rejects, beside: RawColumns | None = None
    ) -> SampleColumns:
        """Give the samples in the order of their records; note the bad records.

        `beside` has the columns of parts that are not in the records, in the order of the block.
        """
        loose = _Loose()
        parsed = self._parse_apart(block, rejects, loose)
        if loose.number:
            parsed.append(loose.columns())

        parts: list[SampleColumns] = []
        for raw, number in parsed:
            if beside:
                at = pa.array(_positions_of(block.number, number))
                raw.update({part: column.take(at) for part, column in beside.items()})

            samples, bad = self._decoder.decode(raw, number)
            rejects.extend(bad)
            parts.append(samples)

        samples = concatenate_columns(parts)
        in_order = len(parts) == 1 and not loose.number  # what stands out was read first

        if in_order:
            return samples
        return in_order_of(block.number, samples)

    def _parse_apart(self, block: LineBlock, rejects: Rejects, loose: _Loose) -> list[Parsed]:
        """Parse those that stand out one by one, the others together."""
        alone = self._form.stands_out(block) if len(block) > LEAF else None
        if alone is None:
            return self._parse(block, rejects, loose)
        self._parse_each(block.select(alone), rejects, loose)

        return self._parse(block.select(~alone), rejects, loose)

    def _parse(self, block: LineBlock, rejects: Rejects, loose: _Loose) -> list[Parsed]:
        if len(block) > LEAF:
            try:
                return [self._form.parse_block(block, rejects)]
            except pa.ArrowInvalid:
                half = len(block) // 2
                left = block.part(0, half)
                right = block.part(half, len(block))
                return self._parse(left, rejects, loose) + self._parse(right, rejects, loose)

        self._parse_each(block, rejects, loose)
        return []

    def _parse_each(self, block: LineBlock, rejects: Rejects, loose: _Loose) -> None:
        for number, record in zip(block.number.tolist(), block.lines(), strict=True):
            result = self._form.parse_record(record)
            if isinstance(result, str):
                unreadable = result in ("malformed", "duplicate_columns")
                rejects.add(result, number, len(record) if unreadable else None)
            else:
                loose.number.append(number)
                loose.rows.append(result)


def is_utf8_record(data: memoryview) -> bool:
    """Say whether bytes are UTF-8."""
    if np.frombuffer(data, np.int8).min(initial=0) >= 0:
        return True

    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False

    return True


def in_order_of(number: Ints, samples: SampleColumns) -> SampleColumns:
    """Bring samples into the order in which their positions stand in `number`."""
    return samples.take(np.argsort(_positions_of(number, samples.position)))


def _positions_of(number: Ints, position: Ints) -> Ints:
    """Find positions in `number`."""
    if len(position) == len(number) and np.array_equal(position, number):
        return np.arange(len(number))
    by_number = np.argsort(number)
    place: Ints = by_number[np.searchsorted(number, position, sorter=by_number)]

    return place
