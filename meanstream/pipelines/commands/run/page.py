"""`--page`: a page in the browser that shows a running engine, on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanstream.streaming.metrics.telemetry import Telemetry


def page_telemetry_of_agents(**options: Any) -> Telemetry:
    """Make the telemetry of an engine of agents."""
    from meanstream.streaming.metrics.telemetry import AgentsTelemetry

    return AgentsTelemetry(**options)


def page_telemetry_of_rounds(**options: Any) -> Telemetry:
    """Make the telemetry of an engine of rounds."""
    from meanstream.streaming.metrics.telemetry import RoundsTelemetry

    return RoundsTelemetry(**options)


def check_page_options(page: str | None, *, remote: bool) -> None:
    """Refuse a page that could not be shown.

    Raises
    ------
    ValueError
        Naming the option, the rule and the value.
    """
    from meanstream.operators.validation import require

    require(page is not None or not remote, "page_remote", "come with --page", remote)
    if page is not None:
        from meanstream.pipelines.page.server import check_page

        check_page(page, remote=remote)


@contextmanager
def showing_page(address: str, telemetry: Telemetry, settings: Any, *, remote: bool = False) -> Iterator[None]:
    """Serve a page as long as the context is open; its address, with the token, is printed once.

    Parameters
    ----------
    address : str
        `HOST:PORT`.
    telemetry : Telemetry
        What is shown.
    settings : AgentsSettings or RoundsSettings
        For the declared bounds.
    remote : bool
        Whether other machines may connect.

    Raises
    ------
    ValueError
        If the page cannot be served there.
    """
    from meanstream.pipelines.page.server import PageServer

    bounds = (settings.lower, settings.upper)
    one = all(isinstance(bound, int | float) for bound in bounds)  # vectors may have others for each coordinate
    with PageServer(address, telemetry, bounds=bounds if one else None, remote=remote) as server:
        sys.stderr.write(f"page: {server.url}\n")
        try:
            yield
        finally:
            telemetry.finish()


def stay_on_page() -> None:
    """Keep the page of a demo open until Ctrl-C or SIGTERM."""
    from threading import Event

    from meanstream.pipelines.commands.run.signals import stopping_on_signals

    sys.stderr.write("The page stays open; Ctrl-C ends it.\n")
    sys.stderr.flush()
    sys.stdout.flush()
    pause = Event()
    with stopping_on_signals() as stop:
        while not stop():
            pause.wait(0.2)
