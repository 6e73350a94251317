"""When the first release of a stream can be expected, and why not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanstream.operators.agents.release_times import Counts, Every, duration_text
from meanstream.operators.records import Floats, Ints

SHARE = 2
"""It is looked again when one part of so many of the samples that wait is new; by no clock, so runs say the same."""


@dataclass(frozen=True, slots=True)
class FirstRelease:
    """Public: when the first release can be expected.

    Attributes
    ----------
    event_time : float or None
        Event time that the stream has to pass, in seconds; None while no agent has sent samples enough.
    why : str
        What is waited for.

    Notes
    -----
    **Privacy.** It follows from who has sent samples, how many and when, which is public of agents.
    """

    event_time: float | None
    why: str


def expected_first_release(
    schedule: Counts | Every, lateness: float, *, counted: Ints, agent: Ints, times: Floats, since: float | None = None
) -> FirstRelease:
    """Say when the first release can be expected, if no agent has released yet.

    Parameters
    ----------
    schedule : Counts or Every
        When an agent releases.
    lateness : float
        Seconds that event time stays behind the newest sample.
    counted : array of int, shape (n_agents,)
        Samples of each agent that event time has passed.
    agent : array of int, shape (n,)
        Whose samples wait for event time.
    times : array of float, shape (n,)
        Their event times.
    since : float, optional
        Newest event time that was passed.

    Examples
    --------
    >>> from meanstream.operators.agents.release_times import parse_schedule
    >>> two = parse_schedule("geometric:2,2")
    >>> none, agent = np.zeros(2, np.int64), np.array([0, 1, 1])
    >>> expected_first_release(two, 60.0, counted=none, agent=agent, times=np.array([5.0, 6.0, 7.0]))
    FirstRelease(event_time=67.0, why="an agent's sample number 2 and 1m of lateness")
    >>> expected_first_release(two, 60.0, counted=none, agent=agent[:2], times=np.array([5.0, 6.0])).why
    "an agent's sample number 2; the agent with most has sent 1"
    """
    wait = f" and {duration_text(lateness)} of lateness" if lateness else ""
    if isinstance(schedule, Every):
        begin = since if since is not None else (float(times.min()) if len(times) else None)
        why = f"the end of an interval of {duration_text(schedule.seconds)}{wait}"
        end = None if begin is None else (np.floor(begin / schedule.seconds) + 1) * schedule.seconds + lateness
        return FirstRelease(None if end is None else float(end), why)
    first = int(schedule.times(1)[0])
    sent = counted + np.bincount(agent, minlength=len(counted))
    enough = sent >= first
    if not enough.any():
        most = int(sent.max(initial=0))
        return FirstRelease(None, f"an agent's sample number {first}; the agent with most has sent {most}")
    theirs = enough[agent]
    agent, times = agent[theirs], times[theirs]
    order = np.lexsort((times, agent))
    agent, times = agent[order], times[order]
    begins = np.flatnonzero(np.r_[True, agent[1:] != agent[:-1]])
    reached = times[begins + np.maximum(first - counted[agent[begins]], 1) - 1]
    return FirstRelease(float(reached.min()) + lateness, f"an agent's sample number {first}{wait}")


class FirstReleaseWatch:
    """Looks for the first release now and then, so that looking costs little, however many samples wait.

    Parameters
    ----------
    look : callable
        Says when it can be expected.
    """

    def __init__(self, look: Callable[[], FirstRelease]) -> None:
        self._look = look
        self._found: FirstRelease | None = None
        self._seen = 0

    def newest(self, waiting: int, accepted: int) -> FirstRelease:
        """Give what is known, with so many samples that wait and that have come; look again once enough have come."""
        if self._found is None or accepted - self._seen >= waiting // SHARE:
            self._found, self._seen = self._look(), accepted
        return self._found
