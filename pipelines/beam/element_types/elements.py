"""Which part of an element is whose sample.

By name, never by the place that a schema happens to give it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from meanstream.operators.validation import closest_valid, require
from meanstream.streaming.events.times import LARGEST
from meanstream.streaming.events.wire import Sample
from meanstream.streaming.sources.mapping import CATEGORY

Part = str | Callable[[Any], Any]
"""A field's name, or what makes the part of an element."""

_USUAL = (str, float, float)

TIME = "time"
"""The field that is a sample's event time, where an element has one and no other is named."""


class BadElementError(Exception):
    """An element that is no sample; its text is the reason, and nothing of the element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFields:
    """Where the parts of a sample are in an element.

    An element is a `beam.Row`, a named tuple, a mapping, a dataclass or a `Sample` event, whose
    fields are taken by name. A plain tuple has no names: where the PCollection has no schema and
    nothing else is named here, one of two is `(agent, value)`, one of three `(agent, value, time)`.
    Everything else is rejected, unless all parts are made by functions.

    Parameters
    ----------
    agent : str or callable
        Whose sample it is: a string, or a whole number.
    value : str or callable, or tuple of str
        The number that was measured, in the unit of the bounds; of a vector the coordinates, in one
        field or in one each; the text of a category, where categories are declared.
    time : str or callable, optional
        Event time: seconds since the epoch, an aware datetime or Beam's `Timestamp`. By default the
        field `time`, if the element has one, otherwise the element's timestamp. The two differ: a
        timestamp is what the source has given, often when it received a message, and is never
        behind the source's watermark; a field is what the sample says, and may be late.
    id : str or callable, optional
        Tells a sample from another: of several with one id the first in event time counts. By
        default there are none.
    person : str or callable, optional
        Whose sample it is within its agent, where a person's samples are limited: a string, or a
        whole number.

    Examples
    --------
    >>> SampleFields(agent="tail", value="delay").named(["delay", "tail"])
    SampleFields(agent='tail', value='delay', time=None, id=None, person=None)
    >>> SampleFields(agent="tial").named(["delay", "tail", "value"])
    Traceback (most recent call last):
    ValueError: agent must name a field of the samples, got 'tial'; did you mean 'tail'?
    """

    agent: Part = "agent"
    value: Part | tuple[str, ...] = "value"
    time: Part | None = None
    id: Part | None = None
    person: Part | None = None

    def __post_init__(self) -> None:
        for name, part in self.parts().items():
            require(
                callable(part) or (isinstance(part, str) and part != ""),
                name,
                "be a name or a function",
                part,
            )

    def parts(self) -> dict[str, Part]:
        """Give those that are named or made."""
        # Coordinates have numbered names.
        found: dict[str, Part] = {"agent": self.agent}
        if isinstance(self.value, tuple):
            found |= {f"value.{number}": name for number, name in enumerate(self.value)}
        else:
            found["value"] = self.value

        more = {"time": self.time, "id": self.id, "person": self.person}
        return found | {name: part for name, part in more.items() if part is not None}

    def named(self, names: list[str], *, owner: str = "agent") -> SampleFields:
        """Hold these to the fields that all elements have; `owner` is what users call the agent.

        Raises
        ------
        ValueError
            If one is not among them, naming the closest one.
        """
        # A wrong name is refused where the pipeline is built, not at the first element.
        for kind, part in self.parts().items():
            if isinstance(part, str) and part not in names:
                hint = closest_valid(part, names, listed="the samples have")
                name = owner if kind == "agent" else kind.partition(".")[0]
                raise ValueError(f"{name} must name a field of the samples, got {part!r}{hint}")

        if self.time is None and TIME in names:
            return replace(self, time=TIME)
        return self


def element_fields(element_type: Any) -> list[str] | None:
    """Give the fields of a PCollection's schema; None where it has none."""
    # Schemas, named tuples and data classes say what they have; anything else does not.
    if isinstance(element_type, RowTypeConstraint):
        found = element_type
    else:
        found = (
            RowTypeConstraint.from_user_type(element_type)
            if isinstance(element_type, type)
            else None
        )

        if found is None and isinstance(element_type, type) and is_dataclass(element_type):
            return [field.name for field in fields(element_type)]

    if found is None:
        return None
    return [name for name, _ in found._fields]


def names_in_element(element: Any) -> frozenset[str]:
    """Names of the fields of an element, as far as names of a program go; none of a plain tuple."""
    kind: Any = type(element)

    # Names only: values of an element are never looked at for a message.
    names: Any = ()

    if isinstance(element, Mapping):
        names = element
    elif isinstance(element, beam.Row):
        names = vars(element)
    elif is_dataclass(kind):
        names = [field.name for field in fields(kind)]
    elif hasattr(kind, "_fields"):
        names = kind._fields

    return frozenset(name for name in names if isinstance(name, str) and name.isidentifier())


class ElementParts:
    """Takes the parts of an element out, each as what a column of its kind holds.

    Parameters
    ----------
    given : SampleFields
        Where they are.
    coordinates : int
        Of a vector; 0 where a value is one number.
    categories : bool
        Whether a value is the text of a category.
    tuples : bool
        Whether a plain tuple may be a sample, by the places of its entries.
    """

    def __init__(
        self,
        given: SampleFields,
        *,
        coordinates: int = 0,
        categories: bool = False,
        tuples: bool = False,
        private_values: bool = False,
    ) -> None:
        self._private_values = private_values
        self.fault = ""
        """Why the last element has no valid value, in rounds, where it is a sample all the same."""
        self._given = given
        self._coordinates = coordinates
        self._categories = categories
        self._tuples = tuples
        self._usual = tuples and not (coordinates or categories or given.id or given.person)
        self._wanted = {part for part in (*given.parts().values(), TIME) if isinstance(part, str)}

    def of(self, element: Any, stamp: int) -> list[Any]:
        """Take agent, value or coordinates, time and, where there are any, id and person."""
        self.fault = ""

        # Tuples of the usual types are nearly all that comes.
        if self._usual and type(element) is tuple and tuple(map(type, element)) == _USUAL:
            agent, value, time = (
                element  # nothing can be wrong with it but the name, and a stream has millions
            )
            return [_text(agent, "agent"), value, time]

        # Whatever else comes may raise anything: it becomes a dead letter with a reason.
        try:
            agent, value, time, name = self._raw(element, stamp)
            row = [_text(agent, "agent"), *self._values_or_none(value), _seconds(time)]
            if self._given.id is not None:
                row.append(self._id(name))

            if self._given.person is not None:
                whose = _made(self._given.person, element, self._by_name(element) or {}, "person")
                row.append(_text(whose, "person"))

            return row
        except BadElementError:
            raise
        except Exception:
            raise BadElementError("malformed") from None

    def _raw(self, element: Any, stamp: int) -> tuple[Any, Any, Any, Any]:
        at = None if stamp <= MIN_TIMESTAMP.micros else Timestamp(micros=stamp)

        # A pair has the time of its element.
        if self._tuples and type(element) in (tuple, list):
            if len(element) not in (2, 3):
                raise BadElementError("malformed")
            return element[0], element[1], element[2] if len(element) == 3 else at, None

        given = self._given
        named = self._by_name(element)

        # Names need an element that has some, unless functions read it.
        if named is None and not all(callable(part) for part in given.parts().values()):
            raise BadElementError("malformed")

        named = named or {}
        value: Any

        if isinstance(given.value, tuple):
            value = [named.get(name) for name in given.value]
        else:
            value = self._made_content(given.value, element, named, "value")

        time = (
            named.get(TIME, at) if given.time is None else _made(given.time, element, named, "time")
        )
        name = None if given.id is None else self._made_content(given.id, element, named, "id")

        return _made(given.agent, element, named, "agent"), value, time, name

    def _by_name(self, element: Any) -> Mapping[str, Any] | None:
        """Give the fields of an element by name; None if it has none."""
        # Elements of many kinds have names: each kind has its own way to give them.
        if isinstance(element, Mapping):
            return element
        if isinstance(element, beam.Row):
            return dict(vars(element))

        kind: Any = type(element)
        if isinstance(element, tuple) and hasattr(kind, "_fields"):
            return dict(zip(kind._fields, element, strict=True))
        known: Any = ()

        # Only wanted fields are read, as others may be properties that cost or raise.
        if is_dataclass(kind):
            known = [field.name for field in fields(kind)]
        elif isinstance(element, Sample):
            known = kind.model_fields

        if known:
            return {name: getattr(element, name) for name in known if name in self._wanted}
        return None

    def _made_content(self, part: Part, element: Any, named: Mapping[str, Any], kind: str) -> Any:
        """Give a value or an id; in rounds, nothing can go wrong with one that the element is lost for."""
        try:
            return _made(part, element, named, kind)
        except BadElementError as bad:
            self._note(bad)
            return UNREADABLE

    def _values_or_none(self, value: Any) -> list[Any]:
        """Give value or coordinates; in rounds, of a bad one what the decoder notes as bad."""
        try:
            return self._values(value)
        except BadElementError as bad:
            self._note(bad)
            return [None if self._categories else math.nan] * max(self._coordinates, 1)

    def _id(self, raw: Any) -> bytes | None:
        try:
            return _text(raw, "id")
        except BadElementError as bad:
            self._note(bad)
            return None

    def _note(self, bad: BadElementError) -> None:
        """Remember the first reason that tells of content alone; of agents, refuse the element."""
        if not self._private_values:
            raise bad
        self.fault = self.fault or str(bad)

    def _values(self, value: Any) -> list[Any]:
        if self._categories:
            return [_text(value, CATEGORY)]
        if not self._coordinates:
            return [_number(value)]
        if value is None:
            raise BadElementError("missing_value")

        if not isinstance(value, (tuple, list, np.ndarray)) or len(value) != self._coordinates:
            raise BadElementError("bad_value")
        return [_number(one) for one in value]


UNREADABLE = object()
"""What a function could not make of an element; it is neither a number nor a name."""


def _made(part: Part, element: Any, named: Mapping[str, Any], kind: str) -> Any:
    if isinstance(part, str):
        return named.get(part)

    try:
        return part(element)
    except Exception:
        raise BadElementError(f"bad_{kind}") from None


def _text(raw: Any, kind: str) -> bytes | None:
    """Write a name or an id; a whole number is one, as in JSON."""
    if raw is None:
        return None

    # True is a number in Python and no name.
    if isinstance(raw, (bool, np.bool_)) or not isinstance(raw, (str, int, np.integer)):
        raise BadElementError(f"bad_{kind}")

    try:
        return str(raw).encode()
    except ValueError:  # a lone surrogate, or thousands of digits
        raise BadElementError(f"bad_{kind}") from None


def _number(raw: Any) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, (bool, np.bool_)) or not isinstance(
        raw, (int, float, np.integer, np.floating, Decimal)
    ):
        raise BadElementError("bad_value")

    try:
        value = float(raw)
    except OverflowError:  # a whole number beyond all floats
        if raw > 0:
            return LARGEST
        return -LARGEST
    except ValueError:  # a decimal that signals
        raise BadElementError("not_finite") from None

    if math.isinf(value) and raw != value:
        return math.copysign(LARGEST, value)
    return value


def _seconds(raw: Any) -> float | None:
    """Read an event time; a datetime without a zone could be anywhere within a day."""
    if raw is None:
        return None

    # Times are seconds, timestamps, or datetimes with a zone.
    if isinstance(raw, Timestamp):
        return float(raw.micros) / 1e6

    if isinstance(raw, datetime):
        if raw.utcoffset() is None:
            raise BadElementError("bad_time")
        return raw.timestamp()

    if isinstance(raw, (bool, np.bool_)) or not isinstance(
        raw, (int, float, np.integer, np.floating, Decimal)
    ):
        raise BadElementError("bad_time")

    try:
        return float(raw)
    except (OverflowError, ValueError):
        raise BadElementError("bad_time") from None
