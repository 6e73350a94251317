"""Speed of the ledger.

Charging a release of every agent at once, and reading all of it back with the chain.

Prints one JSON object. Run from the repository: `python benchmarks/speed/speed_of_ledger.py --agents 100000
--releases 40`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.events.wire import release_ids
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import audit_ledger

OUTPUT = (
    '{"release_id":"%s","agent":"%s","index":%d,"time":"2026-01-01T00:00:00Z","n":640,"total":123456789,'
    '"mean":0.4983726352,"noise_variance":0.00123,"epsilon":1.0,"delta":1e-06,"mode":"tuned","schema_version":1}'
)


def release_of_all(names: list[str], index: int, rng: np.random.Generator) -> LedgerRows:
    """One release of every agent, in any order."""
    n = len(names)
    agent = rng.permutation(n).tolist()
    ids = release_ids(names, agent, [index] * n)
    return LedgerRows(
        agent=agent,
        release_index=[index] * n,
        input_version=rng.integers(-(2**62), 2**62, n).tolist(),
        time=np.sort(rng.uniform(1.7e9, 1.8e9, n)).tolist(),
        output=[(OUTPUT % (i, names[a], index)).encode() for i, a in zip(ids, agent, strict=True)],
    )


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one run."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--releases", type=int, default=40)
    options = parser.parse_args()
    names = [f"agent-{i:06d}" for i in range(options.agents)]
    rng = np.random.default_rng(7)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        settings = {"epsilon": 1.0, "delta": 1e-6, "horizon": options.releases}
        store = Store.open(path, settings=settings, secret=b"a secret of a benchmark")

        def commit(index: int) -> float:
            rows = release_of_all(names, index, rng)

            def charge() -> None:
                with store.transaction():
                    if index == 1:
                        store.add_agents(0, names)
                    store.ledger.charge(rows)

                store.ledger.after(store.ledger.rows() - len(names))

            return seconds(charge)

        commits = [commit(index) for index in range(1, options.releases + 1)]
        store.close()
        result = {
            "rows": options.agents * options.releases,
            "megabytes": round(path.stat().st_size / 1e6, 1),
            "first_commit_seconds": round(commits[0], 3),
            "median_commit_seconds": round(float(np.median(commits)), 3),
            "last_commit_seconds": round(commits[-1], 3),
            "verify_seconds": round(seconds(lambda: audit_ledger(path)), 2),
            "budgets_seconds": round(seconds(lambda: agents_budgets(path)), 2),
        }

    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
