"""`make audit`: every audit of the product, of products that are known to be wrong, and the tables
of docs/privacy.md.

`python -m tests.privacy.evidence --write docs/privacy.md` puts what it prints between the two marks
of that page.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from meanstream.federated import FederatedSite, SiteSettings
from meanstream.lab.evidence.agents_audit import CanaryEvidence, run_canaries
from meanstream.lab.evidence.canaries import Canaries, compressed
from meanstream.lab.evidence.one_run import LEAST_CANARIES
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from tests.pipelines.command_line import SECRET
from tests.privacy.test_pairs_and_sites_twins import LEDGER_TWINS, audit_of_twin, ring
from tests.privacy.test_twins import TWINS, audited, canaries_of

BEGIN, END = "<!-- written by make audit -->", "<!-- end of what make audit wrote -->"
PROMISED = (
    "--lower",
    "0",
    "--upper",
    "1",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--schedule",
    "geometric:1,1.01",
)
AGENTS, RELEASES = 2_500, 40
AUDITS = {
    "meanstream audit mechanism": ("mechanism",),
    "meanstream audit engine --canaries 1000000": ("engine", "--canaries", "1000000"),
    "meanstream audit engine": ("engine",),
    "meanstream audit engine --through engine": ("engine", "--through", "engine"),
    "meanstream audit rounds": ("rounds",),
    "meanstream audit store": ("store",),
    "meanstream audit topic": ("topic",),
    "meanstream audit store pairs.db": ("store",),
    "meanstream audit store site.db": ("store",),
}
"""What is typed, and the words of it; those of stores and topics read a run that is made for them."""
AUDITS_OF_WHAT_IS_RIGHT, TOGETHER = 10_000, 100
KEY = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
SEEDLESS = ("mechanism", "store", "topic")


@dataclass(frozen=True)
class Found:
    """What one audit printed, and what it took."""

    command: str
    rows: list[dict[str, Any]]
    notes: list[str]
    code: int
    seconds: float


def _timed(*words: str) -> tuple[subprocess.CompletedProcess[bytes], float]:
    """Run the product in a process of its own; give its processor seconds, those of the imports
    included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-m", "meanstream.pipelines.commands.main", *words],
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ran, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _released(folder: Path, seed: int) -> dict[str, tuple[str, ...]]:
    """Release of agents whose values are uniform; give what each of the two public audits reads."""
    rng = np.random.default_rng(seed)
    store, releases, source = folder / "state.db", folder / "releases.jsonl", folder / "samples.csv"
    with source.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("agent", "value", "time"))
        for time in range(RELEASES):
            lines.writerows((f"a{i}", f"{x:.3f}", time) for i, x in enumerate(rng.random(AGENTS)))
    where = ("--source", str(source), "--store", str(store), "--releases", str(releases), "--quiet")
    ran, _ = _timed(
        "run", "agents", *PROMISED, "--name", "evidence", "--horizon", str(RELEASES), *where
    )
    if ran.returncode:
        raise SystemExit(ran.stderr.decode())
    return {
        "meanstream audit store": (str(store),),
        "meanstream audit topic": (str(releases), "--store", str(store)),
        **_released_to_partners(folder, rng),
        **_released_by_a_site(folder),
    }


def _released_to_partners(folder: Path, rng: np.random.Generator) -> dict[str, tuple[str, ...]]:
    """Let agents on a ring query both neighbors; give what the audit of their store reads."""
    steps, store, source = 960, folder / "pairs.db", folder / "of-pairs.csv"
    partners = folder / "partners.csv"
    partners.write_text("\n".join(["agent,partner", *ring()]) + "\n")
    agents = sorted({row.split(",")[0] for row in ring()})
    rows = [f"{a},{x:.3f},{t}" for t in range(steps)
            for a, x in zip(agents, rng.random(len(agents)), strict=True)]  # fmt: skip
    source.write_text("\n".join(["agent,value,time", *rows]) + "\n")
    where = ("--source", str(source), "--partners", str(partners), "--store", str(store))
    promised = (*PROMISED[:8], "--schedule", "round_robin", "--name", "evidence", "--quiet")
    ran, _ = _timed("run", "agents", *promised, *where, "--sink", str(folder / "of-pairs.jsonl"))
    if ran.returncode:
        raise SystemExit(ran.stderr.decode())
    return {"meanstream audit store pairs.db": (str(store),)}


def _released_by_a_site(folder: Path) -> dict[str, tuple[str, ...]]:
    """Release 30 means of a site whose budget is 40; give what the audit of its store reads."""
    settings = SiteSettings(epsilon=1, delta=1e-6, releases=40, name="clinic")
    with FederatedSite(folder / "site.db", settings) as site:
        for month in range(30):
            site.release("stay", str(month), total=4_000.0, count=500, lower=0, upper=30)
    return {"meanstream audit store site.db": (str(folder / "site.db"),)}


def audits(seed: int, folder: Path) -> Iterator[Found]:
    """Run every audit; each prints its rows as JSON."""
    read = _released(folder, seed)
    for command, words in AUDITS.items():
        more = () if words[0] in SEEDLESS else ("--seed", str(seed))
        ran, seconds = _timed("audit", *words, *read.get(command, ()), *more, "--json")
        if ran.returncode not in (0, 1) or not ran.stdout:
            raise SystemExit(f"{command}: {ran.stderr.decode()}")
        found = json.loads(ran.stdout)
        told = " ".join((command, *more))
        yield Found(told, found["rows"], found["notes"], ran.returncode, seconds)


def _number(value: float) -> str:
    return f"{value:.3f}" if value else "0"


def audit_lines(found: Found) -> Iterator[str]:
    """One row of the table for each mechanism of an audit."""
    for row in found.rows:
        claimed = f"{row['claimed']:.3g}" + (f" at {row['delta']:g}" if row["delta"] else "")
        end = f" **violated** {row['fault'] or ''}" if row["violated"] else ""
        yield f"| `{row['name']}`{end} | {claimed} | {_number(row['proved'])} | {_number(row['ceiling'])} |"


def evidence_of_audits(seed: int, folder: Path) -> Iterator[str]:
    """A table for each audit, under the command that was run and what it took."""
    for found in audits(seed, folder):
        wrong = sum(row["violated"] for row in found.rows)
        yield f"\n`{found.command}`: {len(found.rows)} audited, {wrong} violated, {found.seconds:.1f} processor seconds"
        yield from (
            "\n| audited | claimed | proved | ceiling |",
            "|---|---|---|---|",
            *audit_lines(found),
        )
        if found.code:
            raise SystemExit(f"{found.command}: {wrong} violated")


def evidence_of_twins() -> Iterator[str]:
    """A row for each product that is known to be wrong: what caught it, after how many canaries."""
    yield "\n`python -m tests.privacy.evidence --twins`: known-bad twins, and canaries until they were caught"
    yield from ("\n| what is wrong | caught by | canaries |", "|---|---|---|")
    for name, twin in TWINS.items():
        ran = audited(twin, twin.command)
        caught = [row for row in ran.json["rows"] if row["violated"]]
        if ran.code != 1 or not caught:
            raise SystemExit(f"{name} was not caught: exit {ran.code}")
        names = ", ".join(f"`{row['name']}`" for row in caught)
        yield f"| {name} | {names} | {canaries_of(caught, twin):,} |"
    for name in LEDGER_TWINS:
        with (
            tempfile.TemporaryDirectory() as folder,
            patch.dict("os.environ", {"MEANSTREAM_SECRET": SECRET}),
        ):
            ran = audit_of_twin(name, Path(folder))
        if ran.code != 1:
            raise SystemExit(f"{name} was not caught: exit {ran.code}")
        names = ", ".join(f"`{row}`" for row in ran.json["violated"])
        number = ran.json["rows"][-1]["method"].split()[0]
        yield f"| {name} | {names} | {number} releases |"


def false_alarms(audits: int, seed: int) -> tuple[int, dict[str, tuple[int, int]]]:
    """Audit the class that makes all releases so often, each time with canaries of its own.

    Returns
    -------
    int, dict
        How many audits blamed it, and for each row of an audit how many there were and how many of
        their bounds lay above the claim.
    """
    settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, horizon=2, name="alarms")
    canaries = Canaries(compressed(settings), LEAST_CANARIES)
    rng, noise = (
        np.random.default_rng(seed),
        KeyedNoise(KEY, deployment="alarms", purpose="deployment"),
    )
    blamed, above = 0, dict[str, tuple[int, int]]()
    for first in range(0, audits, TOGETHER):
        n = min(TOGETHER, audits - first)
        coins = rng.integers(0, 2, (n * LEAST_CANARIES, canaries.number))
        outputs = run_canaries(canaries, noise, coins, first * LEAST_CANARIES)
        for part in np.split(np.arange(len(coins)), n):
            evidence = CanaryEvidence(canaries, "alarms")
            evidence.take(outputs.chosen(part), coins[part])
            rows = list(evidence.rows())
            blamed += any(row.violated for row in rows)
            for row in rows:
                told, over = above.get(row.name, (0, 0))
                above[row.name] = told + 1, over + (row.proved > row.claimed)
    return blamed, above


def evidence_of_alarms(audits: int, seed: int) -> Iterator[str]:
    """Say how often a mechanism that keeps its claim was blamed."""
    began = time.process_time()
    blamed, above = false_alarms(audits, seed)
    shares = ", ".join(f"{over / told:.2%} of `{name}`" for name, (told, over) in above.items())
    yield (
        f"\n`python -m tests.privacy.evidence --alarms {audits} --seed {seed}`: of {audits:,} audits of "
        f"{LEAST_CANARIES} canaries each **{blamed}** blamed what keeps its claim; bounds lay above it in {shares}; "
        f"{time.process_time() - began:.0f} processor seconds"
    )


def written(page: str, lines: list[str]) -> str:
    """Put the lines between the marks of a page.

    >>> print(written(f"before\\n{BEGIN}\\nold\\n{END}\\nafter", ["new"]).replace(BEGIN, "<").replace(END, ">"))
    before
    <
    new
    >
    after
    """
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n" + "\n".join(lines).strip("\n") + f"\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Print the tables, and write them where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=21, help="of coins, deaths and samples")
    parser.add_argument("--twins", action="store_true", help="the known-bad twins alone")
    parser.add_argument("--alarms", type=int, help="so many audits of what is right alone")
    parser.add_argument("--write", type=Path, help="the page whose tables are written anew")
    options = parser.parse_args()
    lines = []
    os.environ.pop("MEANSTREAM_SECRET", None)
    with tempfile.TemporaryDirectory() as folder:
        parts: list[Iterator[str]] = [
            evidence_of_audits(options.seed, Path(folder)),
            evidence_of_twins(),
        ]
        parts.append(evidence_of_alarms(options.alarms or AUDITS_OF_WHAT_IS_RIGHT, options.seed))
        for part in parts[1:2] if options.twins else parts[2:] if options.alarms else parts:
            for line in part:
                print(line, flush=True)  # noqa: T201 - a table
                lines.append(line)
    if options.write:
        options.write.write_text(written(options.write.read_text(), lines))


if __name__ == "__main__":
    main()
