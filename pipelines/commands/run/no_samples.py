"""Warning that no record has a field that a run reads.

Otherwise a run with the wrong name of a field reads a whole topic and ends well, without an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from meanstream.streaming.engine.engine_stats import EngineStats

ENOUGH = 100
"""Records without a sample from which on a run that goes on warns."""
_log = logging.getLogger("meanstream.run")


class NamedFields(Protocol):
    """The fields that options name."""

    @property
    def agent(self) -> str:
        """Whose sample it is."""

    @property
    def value(self) -> str:
        """The number."""

    @property
    def time(self) -> str:
        """Its event time."""


class NoSampleWarning:
    """Warns once, if all records lack one field.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from meanstream.streaming.engine.engine_stats import EngineStats
    >>> warn = NoSampleWarning(SimpleNamespace(agent="device", value="v", time="ts"))
    >>> stats = EngineStats(events=7)
    >>> stats.rejected["missing_agent"] = 7
    >>> warn.text(stats)
    "none of 7 records has the field that --agent names, got 'device'"
    >>> stats.accepted = 1
    >>> warn.text(stats)
    ''
    """

    def __init__(self, options: NamedFields) -> None:
        self._fields = {"agent": options.agent, "value": options.value, "time": options.time}
        self._warned = False

    def text(self, stats: EngineStats) -> str:
        """What is wrong, empty if nothing is."""
        for option, field in self._fields.items():
            missing = stats.rejected.get(f"missing_{option}", 0)
            if missing == stats.events > 0 == stats.accepted:
                rule = f"has the field that --{option} names, got {field!r}"
                return f"none of {stats.events:,} records {rule}"

        return ""

    def watch(self, stats: EngineStats) -> None:
        """Warn as soon as enough records were read."""
        if stats.events >= ENOUGH:
            self.end(stats)

    def end(self, stats: EngineStats) -> None:
        """Warn at the end of a source, however few records it had."""
        said = "" if self._warned else self.text(stats)
        if not said:
            return

        self._warned = True
        hint = (
            "a field within a field is a path, such as meta.device; begin again with a new --store "
            "(on a topic also another group=), since this one has read these records"
        )
        _log.warning(said, extra={"hint": hint})


def with_sample_warning(
    warning: NoSampleWarning, also: Callable[[EngineStats], None] | None
) -> Callable[[EngineStats], None]:
    """Make what an engine tells its statistics after each turn: the warning, and another one."""
    if also is None:
        return warning.watch

    def both(stats: EngineStats) -> None:
        warning.watch(stats)
        also(stats)

    return both
