"""`--page`: a page in the browser that shows a running engine, on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from meanstream.operators.validation import require
from meanstream.pipelines.commands.run.progress_line import announcing_address
from meanstream.pipelines.commands.run.signals import stopping_on_signals
from meanstream.streaming.own_paths import COLLABORATE_PAGE_SUFFIX, PAGE_SUFFIX

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
    """Refuse a page that could not be shown."""
    require(page is not None or not remote, "page_remote", "come with --page", remote)
    if page is not None:
        from meanstream.pipelines.page.page_server import check_page_server

        check_page_server(page, remote=remote)


def page_run_facts(settings: Any, *, source: str) -> dict[str, Any]:
    """Public: say which run a page shows, of agents or of rounds."""
    names = ("name", "epsilon", "delta", "horizon", "window", "estimator", "user_budget")
    facts = {name: value for name in names if (value := getattr(settings, name, None)) is not None}
    return {**facts, "unit": settings.unit, "source": source, "version": version("meanstream")}


@contextmanager
def showing_page(
    address: str,
    telemetry: Telemetry,
    settings: Any,
    *,
    remote: bool = False,
    store: Path | None = None,
    only_read: bool = False,
    foretells: bool = True,
) -> Iterator[Callable[[], None]]:
    """Serve a page as long as the context is open; its address is told by `announcing_address`.

    It foretells when budgets end, where each agent has one budget.
    """
    from meanstream.pipelines.page.page_server import PageServer
    from meanstream.streaming.agents.agents_budget import PAGE_SECONDS, budget_outlook

    bounds = (settings.lower, settings.upper)
    one = all(
        isinstance(bound, int | float) for bound in bounds
    )  # vectors may have others for each coordinate
    ledger = store if foretells and not only_read else None
    outlook = budget_outlook(settings, ledger, least=PAGE_SECONDS)
    suffix = COLLABORATE_PAGE_SUFFIX if only_read else PAGE_SUFFIX

    with PageServer(
        address, telemetry, bounds=bounds if one else None, remote=remote, outlook=outlook
    ) as server:
        url = server.url.partition("?")[0]
        with announcing_address("page", url, server.url, store=store, suffix=suffix) as tell:
            try:
                yield tell
            finally:
                telemetry.finish()


def stay_on_page() -> None:
    """Keep the page of a demo open until Ctrl-C or SIGTERM."""
    sys.stderr.write("The page stays open; Ctrl-C ends it.\n")
    sys.stderr.flush()
    sys.stdout.flush()
    pause = Event()

    with stopping_on_signals() as stop:
        while not stop():
            pause.wait(0.2)
