"""What windows that repeat carry on, and what it gains: read off a window's public answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard


def carried_figures(answer: Mapping[str, Any], lower: float, upper: float) -> dict[str, Any] | None:
    """Public: what a window's answer hands on to the next window; None where it hands on nothing.

    Returns
    -------
    dict
        `windows`: how many windows it was learned from, since it began or began again.
        `half_width`: of the narrow window that the next round asks in, in the value's unit; None
        while reports on the bounds are all there is. `gain`: how many times as large the standard
        error would be, had every user of this window reported on the bounds and nothing been
        carried; None with fewer than two such reports. `contradicts`: why this window's reports did
        not let anything be carried into it; empty if they did.

    Notes
    -----
    The gain is measured, not predicted: the variance of this window's mean on the bounds, of `n` reports, would be
    n / users times as large with one report of each user. It is below 1 in the first windows, in which a part of the
    users votes for the spread. It is not that of the interval, which reaches as far as reports on the bounds leave it
    open, unless `tails` is declared.

    **Privacy.** A function of one public event (`round_events.WindowEstimate`), for anyone.

    Examples
    --------
    >>> state = {"windows": 7, "half_width": 0.1}
    >>> stages = [{"n": 100, "variance": 0.04}, {"stage": "carried", "state": state}]
    >>> answer = {"users": 400, "stderr": 0.25, "stages": stages}
    >>> carried_figures(answer, 0.0, 10.0)
    {'windows': 7, 'half_width': 0.5, 'gain': 2.0, 'contradicts': ''}
    """
    stages = [stage for stage in answer.get("stages", ()) if isinstance(stage, Mapping)]
    last = stages[-1] if stages else {}
    state = last.get("state")
    if last.get("stage") != "carried" or not isinstance(state, Mapping):
        return None

    windows = state.get("windows")
    half = (upper - lower) / 2.0
    reach = state.get("half_width")
    return {
        "windows": windows if _positive(windows) else 0,
        "half_width": half * reach if _positive(reach) else None,
        "gain": _gain(stages[0], answer, half),
        "contradicts": str(last.get("contradicts", "")),
    }


def _gain(bounds: Mapping[str, Any], answer: Mapping[str, Any], half: float) -> float | None:
    n = bounds.get("n")
    variance = bounds.get("variance")
    users = answer.get("users")
    stderr = answer.get("stderr")

    if (
        not (_positive(n) and _positive(variance) and _positive(users) and _positive(stderr))
        or n < 2
    ):
        return None

    return half * math.sqrt(variance * n / users) / stderr


def _positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
