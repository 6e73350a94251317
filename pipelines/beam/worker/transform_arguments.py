"""Arguments of transforms, checked where a pipeline is built.

Each is taken as meant, or refused in one line.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from numbers import Real
from typing import Any, ParamSpec, TypeVar

from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows
from apache_beam.utils.timestamp import Duration

from meanstream.operators.collaboration.anytime_intervals import valid_coverage
from meanstream.operators.counters.base import counter_limit
from meanstream.operators.durations import parse_duration
from meanstream.operators.validation import closest_valid, require, valid_float, valid_int

_T = TypeVar("_T")
_P = ParamSpec("_P")
MOST_SHARDS = 2**15
_RUNNERS_WITHOUT_TIMERS = ("Spark",)


def suggesting_keywords(make: Callable[_P, None]) -> Callable[_P, None]:
    """Refuse an unknown keyword of a transform, and name the nearest known one.

    Examples
    --------
    >>> class Learn:
    ...     @suggesting_keywords
    ...     def __init__(self, *, epsilon: float = 1.0) -> None: ...
    >>> Learn(epsilom=1)
    Traceback (most recent call last):
    TypeError: Learn() got an unexpected argument 'epsilom'; did you mean 'epsilon'?
    """
    known = [name for name in inspect.signature(make).parameters if name != "self"]

    @functools.wraps(make)
    def made(*values: _P.args, **named: _P.kwargs) -> None:
        unknown = next((name for name in named if name not in known), None)
        if unknown is not None:
            said = f"{type(values[0]).__name__}() got an unexpected argument {unknown!r}"
            raise TypeError(f"{said}{closest_valid(unknown, known)}")

        make(*values, **named)

    return made


def as_seconds(name: str, value: Any) -> float:
    """Take seconds as a number, a text as the command line has it, or a duration of Beam's or Python's.

    Examples
    --------
    >>> [as_seconds("refresh", one) for one in (60, "60s", Duration(seconds=60), FixedWindows(60))]
    [60.0, 60.0, 60.0, 60.0]
    >>> as_seconds("refresh", "soon")
    Traceback (most recent call last):
    ValueError: refresh must be a duration such as 90s, 15m (minutes), 1h, 1d or 2w, got 'soon'
    """
    if isinstance(value, Duration):
        return float(value.micros / 1e6)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) and value.strip()[-1:].isalpha():
        return parse_duration(name, value)

    if isinstance(value, FixedWindows):
        require(
            not value.offset.micros,
            name,
            "begin at the epoch, without an offset",
            value.offset.micros / 1e6,
        )

        return float(value.size.micros / 1e6)

    rule = "be a number of seconds or a duration such as '60s'"
    require(isinstance(value, Real | str), name, rule, type(value).__name__)
    return valid_float(name, value)


def as_shards(value: Any) -> int:
    """Take a number of shards.

    Examples
    --------
    >>> as_shards("8")
    8
    """
    shards = valid_int("shards", value)
    require(1 <= shards <= MOST_SHARDS, "shards", f"be in 1..{MOST_SHARDS}", shards)
    return shards


def as_kind(name: str, value: _T, kind: type[_T]) -> _T:
    """Take what is of a kind; of anything else the type is told, and not what it holds.

    Examples
    --------
    >>> as_kind("secret", "hunter2", bytes)
    Traceback (most recent call last):
    ValueError: secret must be of type bytes, got str
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be of type {kind.__name__}, got {type(value).__name__}")
    return value


def as_window(value: Any) -> str:
    """Take a window as `RoundsSettings` spells it, or as Beam does.

    Examples
    --------
    >>> as_window(FixedWindows(60)), as_window(SlidingWindows(3600, 60)), as_window(Sessions(1800))
    ('60s', '3600s,60s', 'session:1800s')
    >>> as_window(FixedWindows(60, offset=5))
    Traceback (most recent call last):
    ValueError: window must begin at the epoch, without an offset, got 5.0
    """
    if isinstance(value, Sessions):
        return f"session:{_text(value.gap_size)}"

    if isinstance(value, FixedWindows | SlidingWindows):
        offset = value.offset.micros / 1e6
        require(not offset, "window", "begin at the epoch, without an offset", offset)
        return _text(value.size) + (
            f",{_text(value.period)}" if isinstance(value, SlidingWindows) else ""
        )

    rule = "be a text such as '7d', or FixedWindows, SlidingWindows or Sessions"
    require(
        isinstance(value, str),
        "window",
        rule,
        value if isinstance(value, int | float) else type(value).__name__,
    )

    return str(value)


def settings_from_parameters(
    settings: Any, parameters: Mapping[str, Any], needed: tuple[str, ...]
) -> dict[str, Any]:
    """Give the parameters that were given; settings are given whole, or by name."""
    given = {name: value for name, value in parameters.items() if value is not None}
    require(settings is None or not given, "settings", "be given once", ", ".join(given))

    if settings is None:
        for name in needed:
            require(name in given, name, "be given, alone or within settings", None)
    elif not is_dataclass(settings):
        raise ValueError(f"settings must be those of the transform, got {type(settings).__name__}")

    return given


def require_histogram_of_quantiles(settings: Any, options: Any) -> Any:
    """Give the options back, if what they ask for can be told."""
    told = settings.histogram_share > 0 or not options.quantiles
    require(told, "quantiles", "be left out with histogram_share 0", options.quantiles)
    valid_coverage(options.coverage, settings.memory)
    return options


def shown_settings(settings: Any, **more: Any) -> dict[str, Any]:
    """Give what a runner shows of a transform: public settings, none of the secret."""
    found = {**asdict(settings), **more}
    if "horizon" in found:
        found["horizon"] = counter_limit(found["horizon"])

    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in found.items()
        if value is not None
    }


def require_timers(pipeline: Any, *, bounded: bool) -> None:
    """Refuse a runner that has no timers in streaming, where they are needed."""
    runner = type(pipeline.runner).__name__
    known = not any(name in runner for name in _RUNNERS_WITHOUT_TIMERS)
    require(
        known or bounded, "runner", "have timers in streaming, as Flink's and Dataflow's", runner
    )


def require_populations(pipeline: Any) -> None:
    """Refuse a runner that drops what a timer gives once event time has gone further.

    Populations would be missing.
    """
    runner = type(pipeline.runner).__name__
    rule = "give populations, as FnApiRunner, Prism, Flink and Dataflow do (ReleaseMeans alone runs on others)"
    require(runner != "BundleBasedDirectRunner", "runner", rule, runner)


def _text(duration: Any) -> str:
    return f"{duration.micros / 1e6:.12g}s"
