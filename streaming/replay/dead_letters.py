"""Dead letters read back from where they were written: which records were not used, and why."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pydantic import ValidationError

from meanstream.operators.records import Bools, Ints
from meanstream.operators.validation import require
from meanstream.streaming.engine.unused_records import UnusedRecords
from meanstream.streaming.events.event_columns import (
    PARTITION_SHIFT,
    column_partitions,
    column_positions,
    topics_index,
    topics_joined,
    topics_own_positions,
    topics_position,
)
from meanstream.streaming.events.wire import DeadLetter, Reason
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location
from meanstream.streaming.sources.lines import LineReader
from meanstream.streaming.store.source_identity import ENGINES
from meanstream.streaming.store.state_store import Store

READ_LINES = 1 << 16
REASONS: tuple[str, ...] = get_args(Reason)
_CODES = {reason: code for code, reason in enumerate(REASONS)}
PLACES = "be a .jsonl file (also .gz), a .parquet folder or kafka://HOST:PORT/TOPIC"


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Public: records that were not used, one entry each, by source and position.

    Never what they said.

    Attributes
    ----------
    sources : list of str
        Names of sources.
    source : int array
        Index into `sources`.
    position : int array
        Partition and place of the record, see
        `meanstream.streaming.events.event_columns.column_position`.
    reason : int array
        Index into `REASONS`: why it was not used. The last letter says it, if there are several of
        one record.
    size : int array
        Bytes of an unreadable record, rounded up to a power of two; -1 where it is not given.
    unreadable : int
        Entries of the place that are no dead letters.
    """

    sources: list[str]
    source: Ints
    position: Ints
    reason: Ints
    size: Ints
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.position)

    @property
    def partition(self) -> Ints:
        """Partition of each record."""
        return column_partitions(self.position)

    def take(self, which: Bools | Ints | slice) -> DeadLetters:
        """Select entries."""
        columns = {
            name: getattr(self, name)[which] for name in ("source", "position", "reason", "size")
        }
        return replace(self, **columns)

    def of(
        self,
        *,
        source: str | None = None,
        reasons: Collection[str] = (),
        partition: int | None = None,
    ) -> DeadLetters:
        """Select the letters of a source, of some reasons and of a partition.

        Without these, all.
        """
        chosen = np.ones(len(self), np.bool_)
        if source is not None:
            chosen &= self._named(source)

        if reasons:
            chosen &= np.isin(self.reason, [REASONS.index(reason) for reason in reasons])

        if partition is not None:
            chosen &= self.partition == partition

        return self.take(chosen)

    def positions_in(self, source: str) -> Ints:
        """Give the positions in a source, which may be several topics, of the records that are its own."""
        own = self.position[self._named(source)]
        topics = [
            topics_position(number, self.position[self._named(name)])
            for number, name in enumerate(topics_joined(source))
            if name != source
        ]

        return np.concatenate([own, *topics])

    def _named(self, source: str) -> Bools:
        number = self.sources.index(source) if source in self.sources else -1
        return np.equal(self.source, number)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Give one plain record per letter."""
        columns = (
            self.reason,
            self.source,
            self.partition,
            column_positions(self.position),
            self.size,
        )

        for reason, source, partition, position, size in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield {
                "reason": REASONS[reason],
                "source": self.sources[source],
                "partition": partition,
                "position": position,
                "size": None if size < 0 else size,
            }

    def groups(self) -> list[dict[str, Any]]:
        """Count by reason, source and partition, and tell first and last position and the range of sizes."""
        # Letters of one reason, source and partition stand together.
        partition = self.partition
        order = np.lexsort((partition, self.source, self.reason))
        keys = [column[order] for column in (self.reason, self.source, partition)]
        new = np.ones(len(self), np.bool_)
        new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
        starts = np.flatnonzero(new)
        groups = []

        for members in np.split(order, starts[1:]) if len(self) else []:
            group = self.take(members)
            positions = column_positions(group.position)
            size = group.size[group.size >= 0]

            groups.append(
                {
                    "reason": REASONS[group.reason[0]],
                    "source": self.sources[group.source[0]],
                    "partition": int(group.partition[0]),
                    "records": len(group),
                    "first": int(positions.min()),
                    "last": int(positions.max()),
                    "smallest": int(size.min()) if len(size) else None,
                    "largest": int(size.max()) if len(size) else None,
                }
            )

        return groups


def dead_letters_still_unused(letters: DeadLetters, store: Store) -> DeadLetters:
    """Select the letters of records that a store has noted as unused, and no replay has counted since."""
    left = np.zeros(len(letters), np.bool_)

    # A topic may have been read beside others: its positions are theirs as well.
    wholes = {name for kind in ENGINES for name in (store.state(kind) or {}).get("positions", ())}
    for number, name in enumerate(letters.sources):
        beside = [
            topics_own_positions(topic, UnusedRecords(store, whole).positions())
            for whole in wholes
            if (topic := topics_index(whole, name)) is not None
        ]
        unused = [UnusedRecords(store, name).positions(), *beside]
        left |= (letters.source == number) & np.isin(letters.position, np.concatenate(unused))

    return letters.take(left)


def read_dead_letters(location: str) -> DeadLetters:
    """Read all dead letters of a place; what is no dead letter is counted and left out."""
    if is_kafka_location(location):
        from meanstream.streaming.kafka.reading.scan import scan_values

        return _collect(
            map(_letter, scan_values(KafkaLocation.parse(location, role="dead_letters")))
        )

    path = Path(location)

    # Compressed files are files of lines all the same.
    kinds = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zip")]
    require(bool(kinds) and kinds[-1] in (".jsonl", ".parquet"), "dead_letters", PLACES, location)

    if kinds[-1] == ".jsonl":
        require(path.is_file(), "dead_letters", "be a readable file", location)
        return _collect(_from_lines(path))

    require(path.is_dir(), "dead_letters", "be a folder of parts", location)
    return _collect(_from_parts(path))


def _from_lines(path: Path) -> Iterator[DeadLetter | None]:
    """Read one letter per line; None where a line is no letter."""
    # A damaged file is named, without a word of what it holds.
    try:
        with closing(LineReader(path)) as reader:
            while (taken := reader.next_block(READ_LINES)) is not None:
                block, oversized = taken
                yield from [None] * len(oversized)
                yield from map(_letter, block.lines())
    except (OSError, ValueError, BadZipFile):
        raise ValueError(
            f"dead_letters must be a readable, undamaged file, got {str(path)!r}"
        ) from None


def _letter(line: bytes | None) -> DeadLetter | None:
    try:
        if line is None:
            return None
        return DeadLetter.model_validate_json(line)
    except ValidationError:
        return None


def _from_parts(folder: Path) -> Iterator[DeadLetter | None]:
    """Read one letter per row of each part."""
    for part_file in sorted(folder.glob("*.parquet")):
        try:
            with parquet.ParquetFile(part_file) as file:
                for batch in file.iter_batches(READ_LINES):
                    for row in batch.to_pylist():
                        try:
                            yield DeadLetter.model_validate(row)
                        except ValidationError:
                            yield None
        except (pa.ArrowException, OSError, ValueError):  # also texts that are no UTF-8
            raise ValueError(
                f"dead_letters must be undamaged Parquet, got another in {str(part_file)!r}"
            ) from None


def _collect(letters: Iterator[DeadLetter | None]) -> DeadLetters:
    """Make columns, in the order of source and position.

    The last letter of a record stands for all of them.
    """
    numbers: dict[str, int] = {}
    source = array("q")
    position = array("q")
    reason = array("q")
    size = array("q")
    unreadable = 0

    for letter in letters:
        # Numbers beyond what positions hold are no letter of ours.
        if (
            letter is None
            or letter.position >> PARTITION_SHIFT
            or letter.partition >> (63 - PARTITION_SHIFT)
            or (letter.size or 0) >> 63
        ):
            unreadable += 1
            continue

        source.append(numbers.setdefault(letter.source, len(numbers)))
        position.append(letter.partition << PARTITION_SHIFT | letter.position)
        reason.append(_CODES[letter.reason])
        size.append(-1 if letter.size is None else letter.size)

    letters_read = DeadLetters(
        list(numbers),
        np.array(source),
        np.array(position),
        np.array(reason),
        np.array(size),
        unreadable,
    )

    # Of several letters of one record the newest counts.
    order = np.lexsort(
        (letters_read.position, letters_read.source)
    )  # stable: the last of equals came last
    ordered = letters_read.take(order)
    last = np.ones(len(ordered), np.bool_)
    last[:-1] = (ordered.source[1:] != ordered.source[:-1]) | (
        ordered.position[1:] != ordered.position[:-1]
    )

    return ordered.take(last)
