"""`meanstream explain --diff`: what one configuration protects less than another, and what more."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.explain.privacy_bearing import (
    AGENTS_BEARING,
    ROUNDS_BEARING,
    Bearing,
)
from meanstream.pipelines.commands.explain.promise_facts import (
    PromiseFact,
    promise_of_agents,
    promise_of_rounds,
)
from meanstream.pipelines.commands.explain.run_files import read_run_file
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.help_text import without_passwords
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

WEAKER = "weaker"
STRONGER = "stronger"
CHANGED = "changed"
VERDICTS = (WEAKER, STRONGER, CHANGED)
NO_STORE = Path(os.devnull) / "no-store"
"""A path that no store can have: two files are compared, not what a store on this machine began
with."""
_COMPARED = "the lines on the promise, if any, show its effect"
MEANINGS = {
    Bearing.UNIT: (
        "the column is new, and protects more than none",
        "no column has this part of the promise any more",
        "another column has this part of the promise",
    ),
    Bearing.PUBLIC: (
        "one more public output",
        "one public output less",
        "the same public output, elsewhere",
    ),
    Bearing.PRIVATE: (
        "one more private output",
        "one private output less",
        "private output goes elsewhere",
    ),
    Bearing.ACCESS: ("other machines may connect", "no other machine may connect", ""),
    Bearing.DEPLOYMENT: ("", "", "another deployment: the same data pays a second budget"),
    Bearing.PROMISE: (_COMPARED,) * 3,
    Bearing.NOTED: ("the budget and the unit stay",) * 3,
}
"""Of an option that is added, left out, or set to another value."""
VERDICT_OF = {
    Bearing.UNIT: (STRONGER, WEAKER, WEAKER),
    Bearing.PUBLIC: (WEAKER, STRONGER, CHANGED),
    Bearing.PRIVATE: (WEAKER, STRONGER, WEAKER),
    Bearing.ACCESS: (WEAKER, STRONGER, CHANGED),
    Bearing.DEPLOYMENT: (CHANGED, WEAKER, WEAKER),
    Bearing.PROMISE: (CHANGED,) * 3,
    Bearing.NOTED: (CHANGED,) * 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two configurations, and which way it goes."""

    verdict: str
    what: str
    old: Any
    new: Any
    meaning: str


def explain_diff(old: Path, new: Path, *, as_json: bool) -> bool:
    """Print the differences; say whether anything is weaker."""
    kinds, found = zip(*(_read(path) for path in (old, new)), strict=True)
    if kinds[0] != kinds[1]:
        raise BadOption(
            f"diff must be two files of agents or two of rounds, got {kinds[0]} and {kinds[1]}"
        )

    differences = sorted(differences_of(*found), key=lambda one: VERDICTS.index(one.verdict))
    if as_json:
        rows = {
            verdict: [_row(one) for one in differences if one.verdict == verdict]
            for verdict in VERDICTS
        }
        print_options_json({"kind": kinds[0], "old": str(old), "new": str(new), **rows})
    else:
        sys.stdout.writelines(_lines(old, new, differences))

    return any(one.verdict == WEAKER for one in differences)


def differences_of(
    old: AgentsOptions | RoundsOptions, new: AgentsOptions | RoundsOptions
) -> Iterator[Difference]:
    """Compare two configurations of one kind.

    The promise by its facts, then each option by its bearing.
    """
    said = set()
    for one, other in zip(_promise(old), _promise(new), strict=True):
        if one.loss != other.loss or one.value != other.value:
            verdict = (
                CHANGED if one.loss == other.loss else WEAKER if other.loss > one.loss else STRONGER
            )
            said.add(one.name.replace(" ", "_"))
            yield Difference(
                verdict=verdict,
                what=one.name,
                old=one.value,
                new=other.value,
                meaning=other.meaning,
            )

    for name, bearing in (AGENTS_BEARING if _is_of_agents(old) else ROUNDS_BEARING).items():
        before = _shown(getattr(old, name))
        after = _shown(getattr(new, name))
        if before == after or bearing is Bearing.NONE or name in said:
            continue

        way = 0 if before is None else 1 if after is None else 2
        verdict = VERDICT_OF[bearing][way]
        meaning = MEANINGS[bearing][way] or MEANINGS[bearing][2]
        yield Difference(verdict=verdict, what=name, old=before, new=after, meaning=meaning)


def _is_of_agents(options: Any) -> bool:
    from meanstream.pipelines.options.agents_options import AgentsOptions

    return isinstance(options, AgentsOptions)


def _read(path: Path) -> tuple[str, AgentsOptions | RoundsOptions]:
    with refusing_options():
        options = read_run_file(path)
        return ("agents" if _is_of_agents(options) else "rounds"), options


def _promise(options: Any) -> list[PromiseFact]:
    with refusing_options():
        settings = replace(options, store=NO_STORE).settings()

        if _is_of_agents(options):
            return promise_of_agents(settings)
        return promise_of_rounds(settings)


def _shown(value: Any) -> Any:
    """Give a value as it may be printed: nothing for what is off, and no password."""
    if value is None or value is False or value == []:
        return None

    if isinstance(value, bool | int | float):
        return value
    return without_passwords(str(value))


def _row(one: Difference) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if name != "verdict"}


def _text(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _lines(old: Path, new: Path, differences: list[Difference]) -> Iterator[str]:
    yield f"{old} -> {new}\n"
    for one in differences:
        pair = " -> ".join(_text(value) for value in (one.old, one.new))
        yield f"{one.verdict:<9} {one.what}: {pair} ({one.meaning})\n"

    counts = (sum(one.verdict == verdict for one in differences) for verdict in VERDICTS)
    yield (
        ", ".join(f"{count} {verdict}" for count, verdict in zip(counts, VERDICTS, strict=True))
        + "\n"
    )
