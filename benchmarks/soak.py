"""Engines on a real broker, killed at random times.

Whether anything is lost, doubled, noised or charged twice.

Run from the repository after `make servers`: `make soak`, or
`python benchmarks/soak.py --kills 1000 --seed 7`. The seed decides how long every engine lives;
where in its work that meets it depends on the machine, and is printed. With `--brokers N` the
broker is killed and started again N times meanwhile. Prints one JSON object and one line, and ends
with exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.servers.support.broker import Broker, temporary_broker
from tests.servers.support.engine_input import EngineInput
from tests.servers.support.engine_worlds import EngineWorlds
from tests.servers.support.outcomes import Kind
from tests.servers.support.random_kills import Phase, RandomKills


def soak(broker: Broker, folder: Path, options: argparse.Namespace) -> RandomKills:
    """Kill so often, and compare every deployment with a run that nobody killed."""
    worlds = EngineWorlds(broker.address, folder / "worlds", EngineInput(samples=options.samples))
    killing = RandomKills(
        worlds, options.seed, options.kills, options.lanes, broker=broker, outages=options.brokers
    )
    killing.run()
    worlds.close()

    return killing


def report(killing: RandomKills, seconds: float) -> dict[str, Any]:
    """Sum up."""
    landed = Counter(kill.phase for kill in killing.kills)
    wrong = Counter(fault.kind for fault in killing.faults)
    return {
        "seed": killing.seed,
        "kills": len(killing.kills),
        "deployments": killing.deployments,
        "broker_kills": killing.outages_met,
        "other_ends": dict(killing.other_ends),
        "landed": {phase.value: landed[phase] for phase in Phase},
        "wrong": {kind.value: wrong[kind] for kind in Kind},
        "examples": [f"{fault.kind}: {fault.what}"[:300] for fault in killing.faults[:5]],
        "minutes": round(seconds / 60, 1),
    }


def main() -> None:
    """Start a broker, kill engines and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--lanes", type=int, default=3, help="engines at the same time")
    parser.add_argument("--samples", type=int, default=1500, help="size of each deployment's input")
    parser.add_argument(
        "--brokers", type=int, default=0, help="how often the broker is killed meanwhile"
    )

    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    began = time.monotonic()
    with temporary_broker() as broker:
        found = report(soak(broker, broker.folder.parent, options), time.monotonic() - began)
    print(json.dumps(found, indent=2))
    wrong = ", ".join(f"{count} {kind}" for kind, count in found["wrong"].items())
    print(
        f"seed {found['seed']}: {found['kills']} kills in {found['deployments']} deployments: {wrong}"
    )

    sys.exit(any(found["wrong"].values()))


if __name__ == "__main__":
    main()
