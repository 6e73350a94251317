"""Which column of a source means what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from meanstream.operators.validation import closest_valid, require
from meanstream.streaming.events.times import TimeUnit

Layout = Literal["plain", "cloudevents", "connect"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

OF_MESSAGE = ("@key", "@timestamp", "@topic")
"""What of a message stands next to its value; and `@header.NAME`."""
_HEADER = "@header."

CATEGORY = "category"
"""The part of a sample that is its value, where categories are declared."""

NO_HEADER = (
    "; its first line holds numbers, as a record does: it must hold the names of the columns"
)

CONTENT = ("value", "category", "id")
"""Kinds of parts that say what a sample holds: in rounds, a record without them still counts for
its user."""
UNREADABLE = {"value": b"?"}
"""Text that stands for a part that no text can; of kinds that are not here, none does."""


class ColumnMapping(BaseModel):
    """Names of a source's columns (or JSON fields) for each part of a sample.

    Parameters
    ----------
    agent, value, time : str
        Required columns.
    values : tuple of str, optional
        Columns of the coordinates of a vector, in order, instead of `value`.
    categories : tuple of str, optional
        Declared categories: the column of the value then holds texts, and a sample's value is the
        number of its category, from 0 (`meanstream.streaming.sources.categories`).
    id : str, optional
        Identifies a sample within the source; without it no duplicate can be recognized.
    person : str, optional
        Says whose sample it is within an agent, where a person's samples are limited.
    schema_version : str
        Read if present; records of an unknown version are rejected.
    time_unit : str
        Of numeric times: "s", "ms", "us", or "auto" by magnitude (below 1e11 seconds, below 1e14
        milliseconds).
    layout : str
        Of JSON records: "plain"; "cloudevents", whose fields are attributes and `data.FIELD`, in
        either mode; or "connect", whose fields are those of the payload next to its schema.
    numbers_in_text : bool
        Take `"12.5"` for a value of JSON and Avro, as files of text always do.
    owner : str
        What messages call whose a sample is, and the option that names its column: "agent", or
        "user" in rounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    agent: str = "agent"
    value: str = "value"
    values: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    time: str = "time"
    id: str | None = None
    person: str | None = None
    schema_version: str = "schema_version"
    time_unit: TimeUnit = "auto"
    layout: Layout = "plain"
    numbers_in_text: bool = False
    owner: Literal["agent", "user"] = "agent"

    @property
    def required(self) -> dict[str, str]:
        """Column of each part that a sample must have.

        Coordinates of a vector are `value.0`, `value.1`, ...

        A category is a part of its own: it is read as names are.
        """
        values = {"value" if self.categories is None else CATEGORY: self.value}
        if self.values is not None:
            values = {f"value.{number}": name for number, name in enumerate(self.values)}

        return {"agent": self.agent, **values, "time": self.time}

    @property
    def optional(self) -> dict[str, str]:
        """Column of each part that a sample has where it was requested."""
        return {
            part: name
            for part, name in (("id", self.id), ("person", self.person))
            if name is not None
        }

    def extra_parts(self) -> dict[str, str]:
        """Give what each part is read from that stands next to the value of a message.

        `@key`, `@header.ce_id`.

        Raises
        ------
        ValueError
            If there is no such thing.

        Examples
        --------
        >>> ColumnMapping(agent="@key", time="@timestamp").extra_parts()
        {'agent': '@key', 'time': '@timestamp'}
        """
        found = {
            part: name
            for part, name in {**self.required, **self.optional}.items()
            if name.startswith("@")
        }

        for part, name in found.items():
            known = name in OF_MESSAGE or (name.startswith(_HEADER) and len(name) > len(_HEADER))
            rule = f"be a field, {', '.join(OF_MESSAGE)} or {_HEADER}NAME (a field of that name: .{name})"
            require(known, self._option(part), rule, name)

        return found

    def require_table(self, source: str) -> None:
        """Refuse what only records of JSON have.

        Raises
        ------
        ValueError
            If records were to be laid out in another way.
        """
        require(
            self.layout == "plain",
            "layout",
            f"be 'plain' for the columns of {source!r}",
            self.layout,
        )

    def resolve(
        self, columns: Sequence[str], *, shown: bool = True, more: str = ""
    ) -> dict[str, str]:
        """Map each part of a sample to its column, given the columns that a source has.

        Parameters
        ----------
        columns : sequence of str
            Their names.
        shown : bool
            Whether a message may show them: not where they may be the values of a first record.
        more : str
            What the message of a missing column ends with.

        Raises
        ------
        ValueError
            If a column is missing (naming the closest one), appears twice, or is used for two
            parts.

        Examples
        --------
        >>> ColumnMapping(agent="tailnumber", value="dep_delay").resolve(["tailnum", "dep_delay", "time"])
        Traceback (most recent call last):
        ValueError: agent column must be in the source, got 'tailnumber'; did you mean 'tailnum'?
        """
        wanted = self.required
        wanted.update(self.optional)

        for part, name in wanted.items():
            if name not in columns:
                hint = closest_valid(name, columns, listed="the source has") if shown else NO_HEADER
                raise ValueError(
                    f"{self._option(part)} column must be in the source, got {name!r}{hint}{more}"
                )

        if self.schema_version in columns:
            wanted["schema_version"] = self.schema_version

        for part, name in wanted.items():
            if list(columns).count(name) > 1:
                raise ValueError(
                    f"{self._option(part)} column must appear once in the header, got {name!r} twice"
                )

        if len(set(wanted.values())) < len(wanted):
            raise ValueError(f"columns must be distinct, got {', '.join(wanted.values())}")
        return wanted

    def _option(self, part: str) -> str:
        return {"agent": self.owner, CATEGORY: "value"}.get(part, mapping_kind(part))


def mapping_kind(part: str) -> str:
    """Say what a part is: a coordinate is a value.

    Examples
    --------
    >>> mapping_kind("value.2"), mapping_kind("agent")
    ('value', 'agent')
    """
    return part.partition(".")[0]
