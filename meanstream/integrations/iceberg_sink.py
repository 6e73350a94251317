"""Releases to an Apache Iceberg table.

Each commit of the table has the releases of one delivery.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from meanstream.operators.validation import require
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import Release
from meanstream.streaming.sinks.sink_protocol import (
    DeliveryFailedError,
    SinkOpening,
    SinkPosition,
    Trust,
    check_sink_trust,
)

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.table import Table
except ImportError:
    raise ValueError("iceberg must be installed: pip install 'meanstream[iceberg]'") from None

ROLE = "releases"
WRITER = "meanstream-writer"
EVENTS = "meanstream-events"
"""Properties of a snapshot: who wrote it, and how many of the writer's events the table holds with
it."""
_PLACE = re.compile(
    r"iceberg://(?P<catalog>[\w-]+)/(?P<table>[\w-]+(?:\.[\w-]+)+)", re.ASCII | re.IGNORECASE
)
_COUNTS = [("counts", pa.list_(pa.int64())), ("noise_variance", pa.float64())]
SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("release_id", pa.string(), nullable=False),
        pa.field("agent", pa.string(), nullable=False),
        pa.field("index", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("total", pa.int64(), nullable=False),
        pa.field("mean", pa.float64(), nullable=False),
        pa.field("noise_variance", pa.float64(), nullable=False),
        pa.field("votes", pa.struct([("number", pa.int64()), ("pairs", pa.int64()), *_COUNTS])),
        pa.field(
            "histogram", pa.struct([("number", pa.int64()), ("samples", pa.int64()), *_COUNTS])
        ),
        pa.field("epsilon", pa.float64(), nullable=False),
        pa.field("delta", pa.float64(), nullable=False),
        pa.field("mode", pa.string(), nullable=False),
        pa.field("schema_version", pa.int64(), nullable=False),
    ]
)
"""The fields of a release, and its number in the table, from 1."""


@dataclass(frozen=True, slots=True)
class IcebergLocation:
    """A table of a catalog that pyiceberg's configuration names."""

    catalog: str
    table: str

    @classmethod
    def parse(cls, location: str, option: str) -> IcebergLocation:
        """Read `iceberg://CATALOG/NAMESPACE.TABLE`."""
        found = _PLACE.fullmatch(location)
        require(found is not None, option, "be iceberg://CATALOG/NAMESPACE.TABLE", location)
        assert found is not None  # noqa: S101 - for the types
        return cls(found["catalog"], found["table"])

    def __str__(self) -> str:
        return f"iceberg://{self.catalog}/{self.table}"

    def loaded(self, option: str) -> Catalog:
        """Open the catalog, or refuse with the way to name it."""
        try:
            return load_catalog(self.catalog)
        except (
            Exception
        ) as error:  # pyiceberg's own, and those of its catalogs; their text may hold a password
            rule = f"name a catalog of .pyiceberg.yaml or PYICEBERG_CATALOG__{self.catalog.upper()}__URI that answers"
            raise ValueError(
                f"{option} must {rule}, got {str(self)!r} ({type(error).__name__})"
            ) from None


class IcebergSink:
    """One snapshot of the table per flush; position: how many events of this store the table holds.

    A snapshot says in its properties how many events of the store the table holds with it. After a
    crash the store writes again what it has not noted, and the sink swallows as many events as the
    table already has. The table is of one deployment, and readers never see a release leave again.

    Parameters
    ----------
    location : IcebergLocation
        The table; namespace and table are made where they are missing.
    option : str
        What named it, for messages.
    """

    trust = Trust.PUBLIC

    @classmethod
    def check(cls, location: str, option: str) -> None:
        """Refuse another role than releases, a catalog that does not answer, and a table of other columns."""
        require(
            option == ROLE,
            option,
            "be a file, a topic or '-': a table takes --releases alone",
            location,
        )
        place = IcebergLocation.parse(location, option)
        cls._table_there(place, place.loaded(option), option)

    @classmethod
    def canonical_location(cls, location: str) -> str:
        """Give catalog and table."""
        return str(IcebergLocation.parse(location, ROLE))

    @classmethod
    def open(cls, location: str, opening: SinkOpening) -> IcebergSink:
        """Make the table, or go on with the one that is there."""
        cls.check(location, opening.option)
        return cls(IcebergLocation.parse(location, opening.option), option=opening.option)

    @classmethod
    def _table_there(cls, place: IcebergLocation, catalog: Catalog, option: str) -> Table | None:
        try:
            table = catalog.load_table(place.table)
        except NoSuchTableError:
            return None

        columns = [field.name for field in table.schema().fields]
        require(
            columns == SCHEMA.names,
            option,
            f"be a table of the columns {', '.join(SCHEMA.names)}",
            str(place),
        )

        return table

    def __init__(self, location: IcebergLocation, *, option: str = ROLE) -> None:
        self._location = location
        self._option = option
        catalog = location.loaded(option)
        table = self._table_there(location, catalog, option)

        if table is None:
            catalog.create_namespace_if_not_exists(location.table.rpartition(".")[0])
            table = catalog.create_table(location.table, schema=SCHEMA)

        self._table = table
        self._writer = secrets.token_hex(16)
        self._events = 0
        self._swallow = 0
        self._lines: list[bytes] = []

    @property
    def place(self) -> str:
        """The table."""
        return str(self._location)

    def write(self, events: EventLines) -> None:
        """Collect releases until the next flush, but for those that the table has already."""
        check_sink_trust(self.trust, events.kind)
        if events.kind is not Release:
            raise TypeError(f"Iceberg sink must be given releases, got {events.kind.__name__}")
        swallowed = min(self._swallow, len(events.lines))
        self._swallow -= swallowed
        self._events += swallowed
        self._lines += events.lines[swallowed:]

    def flush(self) -> None:
        """Append what was collected as one snapshot."""
        if not self._lines:
            return
        total = self._events + len(self._lines)
        rows = _rows_of(self._lines, self._events)

        try:
            self._table.refresh()
            self._table.append(rows, snapshot_properties={WRITER: self._writer, EVENTS: str(total)})
        except Exception as error:  # it may be there or not: `restore` reads the table
            raise DeliveryFailedError(
                f"{self._option}, {self.place}: {type(error).__name__}"
            ) from None

        self._events = total
        self._lines = []

    def position(self) -> SinkPosition:
        """Tell the number of events in the table, and under which name they were written."""
        return {"place": self.place, "writer": self._writer, "events": self._events}

    def restore(self, position: SinkPosition) -> None:
        """Know what the table holds after a position, and swallow it when it comes again."""
        if position["place"] != self.place:
            return  # another table from now on
        self._lines = []
        self._writer = position["writer"]
        self._events = int(position["events"])
        there = self._written()
        require(
            there >= self._events,
            self._option,
            f"be the table with {self._events} releases of this store",
            self.place,
        )
        self._swallow = there - self._events

    def later(self, position: SinkPosition | None) -> Iterator[bytes]:
        """Give the releases after a position."""
        here = position is not None and position["place"] == self.place
        since = int(position["events"]) if here and position is not None else 0
        for row in (
            self._table.scan(row_filter=f"sequence > {since}")
            .to_arrow()
            .sort_by("sequence")
            .to_pylist()
        ):
            yield json.dumps(
                {name: value for name, value in row.items() if name != "sequence"}, default=str
            ).encode()

    def close(self) -> None:
        """Drop what was not flushed."""
        self._lines = []

    def _written(self) -> int:
        """Read how many events of this writer the newest of its snapshots says that the table has."""
        try:
            self._table.refresh()
        except Exception as error:
            raise DeliveryFailedError(
                f"{self._option}, {self.place}: {type(error).__name__}"
            ) from None

        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            said: Any = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if said.get(WRITER) == self._writer:
                return int(said[EVENTS])
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)

        return 0


def _rows_of(lines: list[bytes], before: int) -> pa.Table:
    """Read lines of releases as rows of the table, numbered from `before` on."""
    data = b"\n".join(lines)
    fields = [field for field in SCHEMA if field.name != "sequence"]
    table = arrow_json.read_json(
        pa.BufferReader(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema(fields), unexpected_field_behavior="error"
        ),
    )
    numbers = pa.array(range(before + 1, before + 1 + len(lines)), pa.int64())

    return pa.Table.from_arrays([numbers, *(table[field.name] for field in fields)], schema=SCHEMA)
