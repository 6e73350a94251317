"""Which column of a source means what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from operators.validation import closest

TimeUnit = Literal["auto", "s", "ms", "us"]


class ColumnMapping(BaseModel):
    """Names of a source's columns (or JSON fields) for each part of a sample.

    Parameters
    ----------
    agent, value, time : str
        Required columns.
    values : tuple of str, optional
        Columns of the coordinates of a vector, in order, instead of `value`.
    id : str, optional
        Identifies a sample within the source; without it no duplicate can be recognized.
    schema_version : str
        Read if present; records of an unknown version are rejected.
    time_unit : str
        Of numeric times: "s", "ms", "us", or "auto" by magnitude (below 1e11 seconds, below 1e14 milliseconds).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    agent: str = "agent"
    value: str = "value"
    values: tuple[str, ...] | None = None
    time: str = "time"
    id: str | None = None
    schema_version: str = "schema_version"
    time_unit: TimeUnit = "auto"

    @property
    def required(self) -> dict[str, str]:
        """Column of each part that a sample must have; coordinates of a vector are `value.0`, `value.1`, ..."""
        values = {"value": self.value}
        if self.values is not None:
            values = {f"value.{number}": name for number, name in enumerate(self.values)}
        return {"agent": self.agent, **values, "time": self.time}

    def resolve(self, columns: Sequence[str]) -> dict[str, str]:
        """Map each part of a sample to its column, given the columns that a source has.

        Raises
        ------
        ValueError
            If a column is missing (naming the closest one), appears twice, or is used for two parts.

        Examples
        --------
        >>> ColumnMapping(agent="tailnumber", value="dep_delay").resolve(["tailnum", "dep_delay", "time"])
        Traceback (most recent call last):
        ValueError: agent column must be in the source, got 'tailnumber'; did you mean 'tailnum'?
        """
        wanted = self.required
        if self.id is not None:
            wanted["id"] = self.id
        for part, name in wanted.items():
            if name not in columns:
                hint = closest(name, columns, listed="the source has")
                raise ValueError(f"{kind_of(part)} column must be in the source, got {name!r}{hint}")
        if self.schema_version in columns:
            wanted["schema_version"] = self.schema_version
        for part, name in wanted.items():
            if list(columns).count(name) > 1:
                raise ValueError(f"{kind_of(part)} column must appear once in the header, got {name!r} twice")
        if len(set(wanted.values())) < len(wanted):
            raise ValueError(f"columns must be distinct, got {', '.join(wanted.values())}")
        return wanted


def kind_of(part: str) -> str:
    """Say what a part is: a coordinate is a value.

    Examples
    --------
    >>> kind_of("value.2"), kind_of("agent")
    ('value', 'agent')
    """
    return part.partition(".")[0]
