"""The registry of channels on [-1, 1], and the choice of the best one."""

from __future__ import annotations

from collections.abc import Callable

from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.hybrid import HybridChannel
from meanstream.operators.rounds.channels.laplace import LaplaceChannel
from meanstream.operators.rounds.channels.tuned import TunedWindowChannel
from meanstream.operators.rounds.channels.window_channel import (
    DitheredChannel,
    OneBitChannel,
    PiecewiseChannel,
    check_window_channel_moment,
)
from meanstream.operators.validation import require

CHANNELS: dict[str, Callable[..., Mechanism]] = {
    "one_bit": OneBitChannel,
    "piecewise": PiecewiseChannel,
    "hybrid": HybridChannel,
    "dithered": DitheredChannel,
    "window": TunedWindowChannel,
    "laplace": LaplaceChannel,
}
"""Every channel, by name."""

_ADAPTIVE = frozenset({"dithered", "window"})
"""Channels that are made for values of a certain second moment."""


def make_channel(name: str, epsilon: float, *, second_moment: float = 1.0) -> Mechanism:
    """Make a channel of the registry.

    Parameters
    ----------
    name : str
        A key of `CHANNELS`.
    epsilon : float
        Privacy of one report.
    second_moment : float, default 1
        Public guess of the mean square of the values, in [0, 1]. "dithered" and "window" are made
        for it; the others are the same for every guess.

    Examples
    --------
    >>> make_channel("one_bit", 1.0).low
    -1
    """
    require(name in CHANNELS, "channel", f"be one of {', '.join(CHANNELS)}", name)
    check_window_channel_moment(second_moment)

    if name in _ADAPTIVE:
        return CHANNELS[name](epsilon, second_moment=second_moment)
    return CHANNELS[name](epsilon)


def best_channel(epsilon: float, second_moment: float) -> Mechanism:
    """Make the channel whose reports have the least second moment for values of this second moment.

    Parameters
    ----------
    epsilon : float
        Privacy of one report.
    second_moment : float
        Public guess of the mean square of the values, in [0, 1]. A wrong guess costs accuracy,
        never privacy.

    Examples
    --------
    >>> best_channel(0.3, 1.0).name, best_channel(2.0, 0.3).name
    ('one_bit', 'window')
    """
    found = [make_channel(name, epsilon, second_moment=second_moment) for name in CHANNELS]
    return min(found, key=lambda channel: channel.moments[0] + channel.moments[1] * second_moment)
