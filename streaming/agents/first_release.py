"""When the first release of a stream, and then the next one, can be expected, and why not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.durations import duration_text
from meanstream.operators.records import Floats, Ints

SHARE = 2
"""It is looked again when one part of that many of the samples that wait is new; by no clock, so
runs say the same."""


@dataclass(frozen=True, slots=True)
class FirstRelease:
    """Public: when the first release, or the next one, can be expected.

    Attributes
    ----------
    event_time : float or None
        Event time that the stream has to pass, in seconds; None while no agent has sent samples
        enough.
    why : str
        What is waited for.

    Notes
    -----
    **Privacy.** It follows from who has sent samples, how many and when, which is public of agents.
    """

    event_time: float | None
    why: str


def expected_first_release(
    schedule: Counts | Every,
    lateness: float,
    *,
    counted: Ints,
    agent: Ints,
    times: Floats,
    since: float | None = None,
) -> FirstRelease:
    """Say when the first release can be expected, if no agent has released yet.

    Examples
    --------
    >>> from meanstream.operators.agents.release_times import parse_release_times
    >>> two = parse_release_times("geometric:2,2")
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
        end = (
            None
            if begin is None
            else (np.floor(begin / schedule.seconds) + 1) * schedule.seconds + lateness
        )

        return FirstRelease(None if end is None else float(end), why)

    first = int(schedule.times(1)[0])
    reached, lacks = _reached(np.full(len(counted), first), counted, agent, times)
    if reached is None:
        most = max(first - lacks, 0)
        return FirstRelease(
            None, f"an agent's sample number {first}; the agent with most has sent {most}"
        )

    return FirstRelease(reached + lateness, f"an agent's sample number {first}{wait}")


def next_release(
    schedule: Counts | Every,
    lateness: float,
    *,
    counted: Ints,
    spent: Ints,
    horizon: int,
    agent: Ints,
    times: Floats,
    since: float | None = None,
) -> FirstRelease | None:
    """Say when the next release of any agent can be expected; None if all have made their last one.

    Examples
    --------
    >>> from meanstream.operators.agents.release_times import parse_release_times
    >>> two, state = parse_release_times("geometric:2,2"), {"counted": np.array([3, 5]), "spent": np.array([1, 2])}
    >>> waits = {"agent": np.array([0]), "times": np.array([5.0])}
    >>> next_release(two, 60.0, horizon=2, **state, **waits)
    FirstRelease(event_time=65.0, why='1m of lateness')
    >>> next_release(two, 60.0, horizon=3, **{**state, "spent": np.array([2, 2])}, **waits).why
    'the agent nearest to its next release lacks 3 samples'
    """
    goes_on = spent < horizon
    if not goes_on.any():
        return None
    if isinstance(schedule, Every):
        return expected_first_release(
            schedule, lateness, counted=counted, agent=agent, times=times, since=since
        )

    # Samples of one event time may have passed several numbers of the schedule with one release.
    passed = np.maximum(spent, schedule.releases_up_to(counted))
    ahead = np.where(goes_on, schedule.at(np.where(goes_on, passed, 0) + 1), np.iinfo(np.int64).max)
    reached, lacks = _reached(ahead, counted, agent, times)
    if reached is None:
        lack = "1 sample" if lacks == 1 else f"{lacks:,} samples"
        return FirstRelease(None, f"the agent nearest to its next release lacks {lack}")

    return FirstRelease(
        reached + lateness,
        f"{duration_text(lateness)} of lateness" if lateness else "a later sample",
    )


def _reached(targets: Ints, counted: Ints, agent: Ints, times: Floats) -> tuple[float | None, int]:
    """Give the event time of the sample that is the first to reach an agent's target, or None.

    And what lacks most.
    """
    sent = counted + np.bincount(agent, minlength=len(counted))
    enough = sent >= targets
    if not enough.any():
        return None, int((targets - sent).min(initial=np.iinfo(np.int64).max))

    theirs = enough[agent]
    agent, times = agent[theirs], times[theirs]
    if not len(agent):  # counted already: nothing that waits tells when
        return None, 1

    order = np.lexsort((times, agent))
    agent, times = agent[order], times[order]
    begins = np.flatnonzero(np.r_[True, agent[1:] != agent[:-1]])
    who = agent[begins]

    return float(times[begins + np.maximum(targets[who] - counted[who], 1) - 1].min()), 0


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
        """Give what is known, with so many samples that wait and that have come.

        Look again once enough have come.
        """
        if self._found is None or accepted - self._seen >= waiting // SHARE:
            self._found = self._look()
            self._seen = accepted

        return self._found
