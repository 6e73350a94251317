"""Forty clinics under Flower.

Each one's mean stay in days, from what all release (pip install 'meanstream[flower]').

Each clinic's ledger, secret and answer stay at the clinic. The last lines know the long-run means,
as a simulation can.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from meanstream.federated import SiteSettings, better_mean
from meanstream.integrations import flower_release as flower

CLINICS, ROUND, STAY, BOUNDS, STDDEV = 40, "2026-11", "stay", (0.0, 30.0), 5.0
FOLDER = Path(tempfile.mkdtemp())


def long_run_mean(clinic):
    return 8 + np.random.default_rng([1, clinic]).standard_normal()


def stays(context):
    """Private: days of each patient; made up here, a table of the clinic elsewhere."""
    clinic = context.node_config["partition-id"]
    draw = np.random.default_rng([2, clinic])
    days = long_run_mean(clinic) + STDDEV * draw.standard_normal(int(draw.integers(10, 150)))
    return np.clip(days, *BOUNDS)


def home(context: Context) -> Path:
    return FOLDER / f"clinic-{context.node_config['partition-id']}.db"


client, server = ClientApp(), ServerApp()
release = flower.ReleaseSums(home, SiteSettings(epsilon=1, delta=1e-6, releases=1), {STAY: BOUNDS})


@client.query(mods=[release])
def sums(message: Message, context: Context) -> Message:
    """Sum up; the mod lets out a release instead."""
    own = stays(context)
    content = RecordDict({STAY: MetricRecord({"total": float(own.sum()), "count": len(own)})})
    return Message(content, reply_to=message)


@client.evaluate()
def answer(message: Message, context: Context) -> Message:
    """Private: the clinic's own better mean, written down at home."""
    releases, _ = flower.received_site_releases(
        message, round_name=ROUND, statistic=STAY, bounds=BOUNDS
    )
    own = stays(context)
    found = better_mean(releases, mean=float(own.mean()), count=len(own), stddev=STDDEV)
    result = [
        long_run_mean(context.node_config["partition-id"]),
        own.mean(),
        found.value,
        found.lower,
        found.upper,
    ]
    home(context).with_suffix(".json").write_text(json.dumps(result))
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid: Grid, _: Context) -> None:
    """Gather releases, and send all of them to all.

    The second query is a retry: it costs nothing.
    """
    nodes = flower.wait_for_sites(grid, CLINICS)
    for _ in range(2):
        releases, rejected = flower.gather_site_releases(grid, nodes, ROUND, STAY, BOUNDS)
    list(flower.send_site_releases(grid, nodes, ROUND, releases))
    print(f"{len(releases)} releases, {rejected.total()} rejected")


if __name__ == "__main__":
    run_simulation(server, client, CLINICS)
    truth, alone, value, low, high = np.array(
        [json.loads(one.read_text()) for one in FOLDER.glob("*.json")]
    ).T
    ratio = np.square(value - truth).sum() / np.square(alone - truth).sum()
    inside = np.mean((low <= truth) & (truth <= high))
    print(f"squared error {ratio:.2f} of the clinics alone; {inside:.0%} of intervals hold")
