"""What the engine tells of itself while it works.

Is it alive, can it do its work, how old is its last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

SILENT_SECONDS = 300.0
STUCK_SECONDS = 30.0


@runtime_checkable
class Connected(Protocol):
    """A source or a sink that needs others to answer; `client` is the option that named it.

    **Privacy.** Whether it has a problem is public: no connection is watched that is used only for what is private.
    """

    @property
    def client(self) -> str:
        """Name of the option."""

    @property
    def watched(self) -> bool:
        """Whether everyone may know whether it has a problem."""

    def connection_problem(self) -> str | None:
        """Say why no one answers, or None; quick, and from any thread."""


class EngineHealth:
    """The engine reports into it from its own thread; probes and metrics read it from theirs.

    Parameters
    ----------
    silent_seconds : float
        After so long without a sign of life the process is taken for dead. Longer than any turn
        takes: anyone who asks may kill the process.
    stuck_seconds : float
        A delivery that takes longer has a sink that is down.
    now : callable
        Seconds of a clock that never goes back.

    Notes
    -----
    **Privacy.** It knows when the engine did something and the names that were given to connections, nothing else.

    Examples
    --------
    >>> health = EngineHealth()
    >>> health.not_ready()
    'state is being restored'
    >>> health.started()
    >>> health.not_ready() is None, health.not_alive() is None
    (True, True)
    """

    def __init__(
        self,
        *,
        silent_seconds: float = SILENT_SECONDS,
        stuck_seconds: float = STUCK_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._silent_seconds = silent_seconds
        self._stuck_seconds = stuck_seconds
        self._now = now
        self._alive_at = now()
        self._saved_at: float | None = None
        self._delivering_since: float | None = None
        self._started = self._stopping = False
        self._waiting: str | None = None
        self._problems: dict[str, Callable[[], str | None]] = {}

    # -- the engine reports ------------------------------------------------------------------------------------

    def watch(self, connection: Connected) -> None:
        """Ask a connection for its problem whenever a probe comes."""
        self._problems = {**self._problems, connection.client: connection.connection_problem}

    def waiting(self, what: str | None) -> None:
        """Note what is waited for before the start, a sign of life; None when it is there."""
        self._waiting = what
        self._alive_at = self._now()

    def started(self) -> None:
        """Note that state is restored, and source and sinks are connected."""
        self._started = True
        self.turned()

    def turned(self) -> None:
        """Note that all that was read is in the store and delivered.

        A turn ended, or the source had nothing.
        """
        self._alive_at = self._saved_at = self._now()

    def delivering(self) -> None:
        """Note that a delivery begins, or is tried again."""
        self._alive_at = self._now()
        if self._delivering_since is None:
            self._delivering_since = self._alive_at

    def delivered(self) -> None:
        """Note that the delivery has succeeded."""
        self._alive_at = self._now()
        self._delivering_since = None

    def stopping(self) -> None:
        """Note that no more is read."""
        self._stopping = True

    # -- probes ask ----------------------------------------------------------------------------------------------

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since all that had been read was in the store and delivered.

        None before the start.
        """
        if self._saved_at is None:
            return None
        return max(self._now() - self._saved_at, 0.0)

    def connections(self) -> Mapping[str, str | None]:
        """Give the problem of each connection that is watched, None of those that stand."""
        return {name: problem() for name, problem in self._problems.items()}

    def not_alive(self) -> str | None:
        """Say why the process should be replaced, or None."""
        silent = self._now() - self._alive_at

        if silent > self._silent_seconds:
            return f"no sign of life for {silent:.0f} s"
        return None

    def not_ready(self) -> str | None:
        """Say why the engine cannot do its work now, or None."""
        if not self._started:
            return self._waiting or "state is being restored"
        if self._stopping:
            return "stopping"

        for name, problem in self.connections().items():
            if problem is not None:
                return f"{name} cannot be reached: {problem}"

        since = self._delivering_since
        if since is not None and self._now() - since > self._stuck_seconds:
            return f"delivery has not succeeded for {self._now() - since:.0f} s"
        return self.not_alive()
