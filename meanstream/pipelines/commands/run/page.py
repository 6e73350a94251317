"""`--page`: a page in the browser that shows a running engine, on this machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.options.errors import RunFailed

if TYPE_CHECKING:
    from meanstream.streaming.metrics.telemetry import Telemetry

_log = logging.getLogger("meanstream.run")


def page_telemetry_of_agents(**options: Any) -> Telemetry:
    """Make the telemetry of an engine of agents."""
    from meanstream.streaming.metrics.telemetry import AgentsTelemetry

    return AgentsTelemetry(**options)


def page_telemetry_of_rounds(**options: Any) -> Telemetry:
    """Make the telemetry of an engine of rounds."""
    from meanstream.streaming.metrics.rounds_telemetry import RoundsTelemetry

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
        from meanstream.pipelines.page.server import check_page_server

        check_page_server(page, remote=remote)


def page_run_facts(settings: Any, *, source: str) -> dict[str, Any]:
    """Public: say which run a page shows, of agents or of rounds."""
    from importlib.metadata import version

    names = ("name", "epsilon", "delta", "horizon", "window", "estimator", "user_budget")
    facts = {name: value for name in names if (value := getattr(settings, name, None)) is not None}
    return {**facts, "unit": settings.unit, "source": source, "version": version("meanstream")}


@contextmanager
def showing_page(
    address: str, telemetry: Telemetry, settings: Any, *, remote: bool = False, store: Path | None = None
) -> Iterator[Callable[[], None]]:
    """Serve a page as long as the context is open; its address, with the token, is told once.

    On a terminal, or without a store, it is printed. Elsewhere standard error is a log, which others may read: there
    what is given, to be called once the store is this run's own, writes it into a file beside the store.

    Parameters
    ----------
    address : str
        `HOST:PORT`.
    telemetry : Telemetry
        What is shown.
    settings : AgentsSettings or RoundsSettings
        For the declared bounds, and when budgets end.
    remote : bool
        Whether other machines may connect.
    store : Path, optional
        The store of the run.

    Raises
    ------
    ValueError
        If the page cannot be served there.
    """
    from meanstream.pipelines.page.server import PageServer
    from meanstream.streaming.agents.ledger_forecast import PAGE_SECONDS, budget_outlook
    from meanstream.streaming.own_paths import PAGE_SUFFIX

    bounds = (settings.lower, settings.upper)
    one = all(isinstance(bound, int | float) for bound in bounds)  # vectors may have others for each coordinate
    outlook = budget_outlook(settings, store, least=PAGE_SECONDS)
    with PageServer(address, telemetry, bounds=bounds if one else None, remote=remote, outlook=outlook) as server:
        place = None if store is None or sys.stderr.isatty() else store.with_name(store.name + PAGE_SUFFIX)
        written: list[Path] = []
        if place is None:
            sys.stderr.write(f"page: {server.url}\n")

        def tell() -> None:
            if place is not None:
                _write_address(place, server.url)
                written.append(place)
                _log.info("page is served", extra={"url": server.url.partition("?")[0], "token_in": str(place)})

        try:
            yield tell
        finally:
            telemetry.finish()
            for path in written:
                path.unlink(missing_ok=True)


def _write_address(place: Path, url: str) -> None:
    """Write a line that only the owner of the file can read, in place of one that a killed run has left."""
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(url + "\n")
        fresh.replace(place)
    except OSError as error:
        raise RunFailed(f"page could not be told in {str(place)!r} ({error.strerror})") from None


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
