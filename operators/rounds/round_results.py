"""Reading what a stage found when it comes from outside.

Field by field, and everything else is refused.

A statistician may send any bytes as a stage's result. Users report upon it only after the stage
that would have made it has checked it (`Round.check`), so that whether and how a user's report
comes about never depends on the user's data.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, NoReturn, Self

import msgspec
import numpy as np

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.round_records import Public, Summaries

LEAST_WIDTH = 2.0**-19
"""One step of the grid of 2**20 steps on which values are held, for values on [-1, 1]: no window is
narrower."""

MOST = 1e12
"""No center, error or share that a stage computes is beyond this: reports are numbers of the
channels' ranges."""

_CLOSE = 1e-9
"""What hosts whose libraries differ may differ by in a number that both compute."""

_MOST_ENTRIES = 1_000_000
_DEEPEST = 8
_LONGEST = 256


def extreme_users(span: int, shape: tuple[int, ...] = ()) -> Summaries:
    """Make up users at the ends and in the middle of what users can hold, with few samples and with many.

    Parameters
    ----------
    span : int
        Of the grid.
    shape : tuple of int
        Of a user's sum.

    Examples
    --------
    >>> extreme_users(2**20).mean[[0, 2, 4]]
    array([-1.,  0.,  1.])
    """
    counts = (1, 2, 3, 1000, 2**20, 2**40)
    places = (0, 1, span // 2, span - 1, span)
    count = np.repeat(np.array(counts), len(places))
    first = np.tile(np.array(places), len(counts))
    rows = (len(first), *(1 for _ in shape))
    first = np.broadcast_to(first.reshape(rows), (len(first), *shape)).copy()
    users = keyed_owner_words([f"extreme {number}" for number in range(len(count))])

    return Summaries(
        user=users, count=count, total=first * count.reshape(rows), first=first, span=span
    )


Number = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
"""A finite number of a result."""
Error = Annotated[float, msgspec.Meta(ge=0.0, le=MOST)]
"""A standard error, or another number that is not negative."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""How many users, reports or votes."""
Told = list[dict[str, Any]]
"""What stages tell of themselves for pictures: it is not read."""


class StageFound(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Public: what a stage hands on; reading it from plain data is the check of its form.

    A stage has a class of its own. Fields that may be left out have the default None.

    Examples
    --------
    >>> class Center(StageFound, frozen=True, kw_only=True):
    ...     center: Number
    >>> Center.of({"center": 0.5}).plain()
    {'center': 0.5}
    >>> Center.of({"center": float("nan")})
    Traceback (most recent call last):
    ValueError: stage result: center must be as its stage hands it on: Expected `float` >= -1000000000000.0
    """

    @classmethod
    def of(cls, public: Any) -> Self:
        """Read plain data, or refuse it with `ValueError`."""
        try:
            return msgspec.convert(public, cls)
        except msgspec.ValidationError as error:
            what, _, place = str(error).partition(" - at `$")
            name = place.strip("`.") or "it"
            said = " ".join(what.split())[:120]
            raise ValueError(
                f"stage result: {name} must be as its stage hands it on: {said}"
            ) from None

    def plain(self) -> Public:
        """Give it as plain data."""
        plain: Public = msgspec.to_builtins(self, enc_hook=_python_number)
        return plain


def _python_number(number: Any) -> Any:
    return number.item()


class LastRound:
    """A round that answers: nothing comes after it, so that nothing can be its result."""

    name: str

    def check(self, found: Public, public: Public) -> None:  # noqa: ARG002 - whatever it is
        """Public: refuse any result; the last stage makes the estimate."""
        refuse_result("stage", f"be one before the last: {self.name} answers", "a result")


def refuse_result(name: str, rule: str, value: object) -> NoReturn:
    """Raise for a field of a result; what is shown of it is short, whatever it is."""
    shown = (
        repr(value)[:60]
        if isinstance(value, str | float | bool) or value is None
        else type(value).__name__
    )
    raise ValueError(f"stage result: {name} must {rule}, got {shown}")


def result_number(value: Any, name: str, low: float, high: float) -> float:
    """Read a finite number within bounds.

    Integers of any size and numbers that are none are refused alike.

    Examples
    --------
    >>> result_number(0.25, "center", -1, 1)
    0.25
    >>> result_number(float("nan"), "center", -1, 1)
    Traceback (most recent call last):
    ValueError: stage result: center must lie between -1 and 1, got nan
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        refuse_result(name, f"lie between {low:g} and {high:g}", value)

    return float(value)


def result_near(value: Any, name: str, wanted: float) -> float:
    """Read a number that the reader has computed, too."""
    return result_number(value, name, wanted - _CLOSE, wanted + _CLOSE)


def result_row(
    row: Sequence[Any], names: Sequence[str], candidates: Sequence[Sequence[float]]
) -> int:
    """Read numbers that are one of the candidates; tell which.

    Examples
    --------
    >>> result_row([0.5], ["center"], [[0.0], [0.5]])
    1
    """
    given = np.array(
        [result_number(one, name, -MOST, MOST) for one, name in zip(row, names, strict=True)]
    )
    apart = np.abs(np.array(candidates, np.float64) - given).max(axis=1)
    best = int(np.argmin(apart))

    if apart[best] > _CLOSE:
        refuse_result(", ".join(names), "be what votes can elect", "other values")

    return best


def result_added(found: list[Any], before: list[Any], name: str, *, by: int = 1) -> list[Any]:
    """Read a list that begins as before, and has at most that many entries more; give these."""
    if found[: len(before)] != before or len(found) > len(before) + by:
        rule = f"be the earlier result and at most {by} entries more"
        refuse_result(name, rule, "another list")

    return found[len(before) :]


def result_unchanged(found: object, before: object, name: str) -> None:
    """Refuse another value of a field than was accepted before."""
    if found != before:
        refuse_result(name, "stay the earlier result", found)


def result_as_plain_data(found: Any) -> None:
    """Refuse data that is deep, large, or holds numbers that are none.

    What stages tell for pictures is not read.
    """
    left = [found]
    level = 0
    seen = 0
    while left:
        if level > _DEEPEST:
            refuse_result("it", f"be at most {_DEEPEST} levels deep", found)

        seen += len(left)
        if seen > _MOST_ENTRIES:
            refuse_result("it", f"have at most {_MOST_ENTRIES} entries", found)

        left, level = [part for one in left for part in _parts(one)], level + 1


def _parts(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list):
        return value

    if isinstance(value, str):
        if len(value) > _LONGEST:
            refuse_result("a text", f"be at most {_LONGEST} characters long", "a longer one")
    elif value is not None and not isinstance(value, bool):
        result_number(value, "a number", -1e300, 1e300)

    return ()
