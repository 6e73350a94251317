"""Agents on a real Flink cluster whose TaskManager and workers are killed: whether anything is lost or noised twice.

Run from the repository after `make servers flink`: `make soak`, or `python benchmarks/soak_flink.py --kills 100
--seed 7`. A control pipeline with fresh noise meets the same kills, and must show more than one value for a release:
otherwise nothing was proven. Prints one JSON object and one line, and ends with exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.servers.support import flink_cluster
from tests.servers.support.broker import temporary_broker
from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_kills import FlinkKills, FlinkWorld


def report(killing: FlinkKills, seconds: float) -> dict[str, Any]:
    """Sum up."""
    wrong = {
        "noised twice": len(killing.ours.noised_twice),
        "lost": len(killing.ours.lost),
        "not the engine's": len(killing.ours.strange),
        "estimates that contradict": len(killing.contradictions),
        "windows without estimates": len(killing.unanswered),
        "refused": killing.refusals,
        "no kill met a release": int(not killing.ours.again),
        "control without a second noise": int(not killing.fresh.noised_twice),
    }
    return {
        "seed": killing.seed,
        "kills": len(killing.kills),
        "killed": killing.landed(),
        "releases": killing.releases,
        "released_again": killing.ours.again,
        "control_noised_twice": len(killing.fresh.noised_twice),
        "wrong": wrong,
        "examples": [*killing.ours.noised_twice[:3], *killing.ours.lost[:3], *killing.contradictions[:3]],
        "minutes": round(seconds / 60, 1),
    }


def keep_logs(folder: Path) -> str:
    """Copy the logs of a cluster to where they stay."""
    kept = tempfile.mkdtemp(prefix="soak-flink-")
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)
    return kept


def main() -> None:
    """Start a broker and a cluster, kill and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    options = parser.parse_args()
    if reason := flink_cluster.missing():
        sys.exit(reason)
    print(f"seed {options.seed}", file=sys.stderr)
    began = time.monotonic()
    with temporary_broker() as broker:
        folder = broker.folder.parent
        cluster = FlinkCluster(folder / "flink", slots=2)
        try:
            cluster.start()
            killing = FlinkKills(FlinkWorld(cluster, broker.address, folder, "soak"), options.seed, options.kills)
            killing.run()
        except TimeoutError:
            print(f"logs: {keep_logs(cluster.folder)}", file=sys.stderr)
            raise
        finally:
            cluster.stop()
    found = report(killing, time.monotonic() - began)
    print(json.dumps(found, indent=2))
    wrong = ", ".join(f"{count} {kind}" for kind, count in found["wrong"].items())
    print(f"seed {found['seed']}: {found['kills']} kills on Flink, {found['releases']} releases: {wrong}")
    sys.exit(any(found["wrong"].values()))


if __name__ == "__main__":
    main()
