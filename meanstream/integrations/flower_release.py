"""Flower: a mod that lets a client's sums leave as charged releases only, and helpers of the server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid

from meanstream.integrations.federated_answer import read_site_releases
from meanstream.integrations.federated_site import FederatedSite, SiteRelease, SiteSettings
from meanstream.operators.validation import require

ROUND = "round"
PREFIX = "release "
Bounds = tuple[float, float]


class ReleaseSums:
    """A mod of a `ClientApp`: it replaces sums by releases, and nothing else of the reply leaves.

    The app replies to a query with one `MetricRecord` for each statistic, of `total` and `count`;
    values are clipped to the bounds before. The query names its round in the record `round`.

    Parameters
    ----------
    store : callable
        Gives the path of a site's ledger from its `Context`.
    settings : SiteSettings
        Budget of a record at a site.
    bounds : mapping of str to (float, float)
        Declared bounds of each statistic; others are refused.

    Notes
    -----
    **Privacy.** Every reply is made of releases of `FederatedSite` alone: a retried round repeats them, uncharged.
    """

    def __init__(
        self, store: Callable[[Context], Path], settings: SiteSettings, bounds: Mapping[str, Bounds]
    ) -> None:
        self._store = store
        self._settings = settings
        self._bounds = dict(bounds)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Call the app, and release what it sums up."""
        reply = call_next(message, context)
        sums = dict(reply.content.metric_records)
        unknown = sorted(set(sums) - set(self._bounds))
        require(
            bool(sums) and not unknown,
            "statistics",
            f"be of {', '.join(self._bounds)}",
            ", ".join(unknown) or None,
        )
        round_name = str(message.content.config_records[ROUND][ROUND])

        with FederatedSite(self._store(context), self._settings) as site:
            made = {
                name: self._released(site, name, round_name, record)
                for name, record in sums.items()
            }

        reply.content = RecordDict(
            {PREFIX + name: ConfigRecord(one.plain()) for name, one in made.items()}
        )
        return reply

    def _released(
        self, site: FederatedSite, name: str, round_name: str, record: MetricRecord
    ) -> SiteRelease:
        lower, upper = self._bounds[name]
        total = record["total"]
        count = record["count"]
        if not isinstance(total, int | float) or not isinstance(count, int):
            raise TypeError("a statistic must have a number as total and a whole number as count")

        return site.release(
            name, round_name, total=float(total), count=count, lower=lower, upper=upper
        )


def query_of_round(round_name: str) -> RecordDict:
    """Give the content of a query for releases of a round."""
    return RecordDict({ROUND: ConfigRecord({ROUND: round_name})})


def wait_for_sites(grid: Grid, sites: int, *, seconds: float = 60.0) -> list[int]:
    """Wait until that many clients are connected.

    Give the ids of those that are when time is up.
    """
    until = time.monotonic() + seconds
    while len(nodes := list(grid.get_node_ids())) < sites and time.monotonic() < until:
        time.sleep(0.2)

    return nodes


def gather_site_releases(
    grid: Grid,
    nodes: Sequence[int],
    round_name: str,
    statistic: str,
    bounds: Bounds,
    *,
    settings: SiteSettings | None = None,
    timeout: float | None = None,
) -> tuple[list[SiteRelease], Counter[str]]:
    """Ask clients for a round; give the possible releases, and count others by reason. Public."""
    asked = [
        Message(
            content=query_of_round(round_name),
            dst_node_id=node,
            message_type="query",
            group_id=round_name,
        )
        for node in nodes
    ]
    received = []
    failed = 0

    for reply in grid.send_and_receive(asked, timeout=timeout):
        if reply.has_error() or PREFIX + statistic not in reply.content.config_records:
            failed += 1
        else:
            received.append(dict(reply.content.config_records[PREFIX + statistic]))

    lower, upper = bounds
    found, rejected = read_site_releases(
        received,
        statistic=statistic,
        round_name=round_name,
        lower=lower,
        upper=upper,
        settings=settings,
    )

    if failed:
        rejected["no_reply"] += failed

    return found, rejected


def send_site_releases(
    grid: Grid,
    nodes: Sequence[int],
    round_name: str,
    releases: Sequence[SiteRelease],
    *,
    timeout: float | None = None,
) -> Iterable[Message]:
    """Send all releases to the clients, which answer themselves; give the replies."""
    content = {
        f"{PREFIX}{number}": ConfigRecord(one.plain()) for number, one in enumerate(releases)
    }
    sent = [
        Message(
            content=RecordDict(content),
            dst_node_id=node,
            message_type="evaluate",
            group_id=round_name,
        )
        for node in nodes
    ]
    replies: Iterable[Message] = grid.send_and_receive(sent, timeout=timeout)

    return replies


def received_site_releases(
    message: Message,
    *,
    round_name: str,
    statistic: str,
    bounds: Bounds,
    settings: SiteSettings | None = None,
) -> tuple[list[SiteRelease], Counter[str]]:
    """Read, at a client, the releases that `send_site_releases` sent."""
    lower, upper = bounds
    records = [
        dict(one) for name, one in message.content.config_records.items() if name.startswith(PREFIX)
    ]

    return read_site_releases(
        records,
        statistic=statistic,
        round_name=round_name,
        lower=lower,
        upper=upper,
        settings=settings,
    )
