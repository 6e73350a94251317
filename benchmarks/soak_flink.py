"""Agents on a real Flink cluster whose TaskManager and workers are killed.

Whether anything is lost or noised twice.

Run from the repository after `make servers flink`: `make soak`, or `python benchmarks/soak_flink.py --kills 100
--seed 7`. A control pipeline with fresh noise meets the same kills, and must show more than one value for a release:
otherwise nothing was proven. Prints one JSON object and one line, and ends with exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.servers.support import flink_cluster
from tests.servers.support.broker import temporary_broker
from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_kills import FlinkKills, FlinkWorld

ROOM = 8 << 30
"""Bytes: jars, checkpoints, logs and topics of a soak, and what Flink writes beside them."""


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
        "answered_again_under_a_later_population": killing.answered_anew,
        "control_noised_twice": len(killing.fresh.noised_twice),
        "wrong": wrong,
        "values_of_a_release": {"ours": killing.ours.values, "control": killing.fresh.values},
        "seconds_to_releases_after_a_kill": spread(killing.lag_seconds),
        "seconds_to_answers_after_a_kill": spread(killing.answer_seconds),
        "mebibytes_more_on_disk": [(used - killing.disk[0]) >> 20 for used in killing.disk[1:]],
        "exceptions": sorted({text.partition("\n")[0][:200] for text in killing.exceptions}),
        "examples": [
            *killing.ours.noised_twice[:3],
            *killing.ours.lost[:3],
            *killing.contradictions[:3],
        ],
        "minutes": round(seconds / 60, 1),
    }


def spread(seconds: list[float]) -> dict[str, Any]:
    """Tell each, and sum up."""
    each = [round(one, 1) for one in seconds]
    return {"median": round(statistics.median(seconds), 1), "most": max(each), "each": each}


def require_room(folder: Path) -> None:
    """End where the disk would be full before the soak is done.

    A job without room restarts for ever.

    Raises
    ------
    SystemExit
        In one line.
    """
    free = shutil.disk_usage(folder).free
    if free < ROOM:
        sys.exit(f"disk must have {ROOM >> 30} GiB free under {folder}, got {free >> 30}")


def keep_logs(folder: Path, exceptions: list[str]) -> str:
    """Copy the logs of a cluster, and what has ended attempts of the job, to where they stay."""
    kept = tempfile.mkdtemp(prefix="soak-flink-")
    Path(kept, "exceptions.txt").write_text("\n\n".join(exceptions))
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)

    return kept


def main() -> None:
    """Start a broker and a cluster, kill and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    options = parser.parse_args()
    if reason := flink_cluster.missing():
        sys.exit(reason)
    print(f"seed {options.seed}", file=sys.stderr)

    began = time.monotonic()
    with temporary_broker() as broker:
        folder = broker.folder.parent
        require_room(folder)
        cluster = FlinkCluster(folder / "flink", slots=2)
        killing = None

        try:
            cluster.start()
            killing = FlinkKills(
                FlinkWorld(cluster, broker.address, folder, "soak"), options.seed, options.kills
            )
            killing.run()
        except TimeoutError:
            print(
                f"logs: {keep_logs(cluster.folder, killing.exceptions if killing else [])}",
                file=sys.stderr,
            )
            raise
        finally:
            cluster.stop()

    found = report(killing, time.monotonic() - began)
    print(json.dumps(found, indent=2))
    wrong = ", ".join(f"{count} {kind}" for kind, count in found["wrong"].items())
    print(
        f"seed {found['seed']}: {found['kills']} kills on Flink, {found['releases']} releases: {wrong}"
    )
    sys.exit(any(found["wrong"].values()))


if __name__ == "__main__":
    main()
