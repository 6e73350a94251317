"""What learning together does to small groups and to those far from the middle.

Who gains, who is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.real.measure import Errors
from meanstream.operators.records import Bools

LEAST = 20
"""Owners of whom something is said."""

GROUPS: dict[str, Callable[[Errors], Bools]] = {
    "all": lambda e: np.ones(len(e.count), np.bool_),
    "5 to 9 values": lambda e: e.count < 10,
    "10 to 29": lambda e: (e.count >= 10) & (e.count < 30),
    "30 to 99": lambda e: (e.count >= 30) & (e.count < 100),
    "100 and more": lambda e: e.count >= 100,
    "the farthest 5 %": lambda e: e.far,
    "of these, below 100 values": lambda e: e.far & (e.count < 100),
    "all others": lambda e: ~e.far,
}
HEAD = (
    "| set | epsilon | who | owners | error, of alone | pulled by | covered | covered alone |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def subgroup_rows(name: str, epsilon: float, found: Sequence[Errors]) -> Iterator[dict[str, Any]]:
    """Sum up each group of owners over the noise seeds.

    `pulled` is how far the answer lies from the own mean towards the middle of all, in standard
    errors of an own mean.
    """
    for group, members in GROUPS.items():
        chosen = [members(errors) for errors in found]
        owners = int(chosen[0].sum()) // found[0].halves
        if owners < LEAST:
            continue
        parts = [(e, who) for e, who in zip(found, chosen, strict=True) if who.any()]

        yield {
            "set": name,
            "epsilon": epsilon,
            "group": group,
            "owners": owners,
            "ratio": 1
            + float(np.mean([e.more[who].sum() / e.alone[who].sum() for e, who in parts])),
            "pulled": float(np.mean([e.pulled[who].mean() for e, who in parts])),
            "covered": float(np.mean([e.covered[who].mean() for e, who in parts])),
            "covered_alone": float(np.mean([e.covered_alone[who].mean() for e, who in parts])),
        }


def subgroup_table(rows: Sequence[dict[str, Any]]) -> str:
    """Lay the rows out as Markdown."""
    lines = [
        f"| {r['set']} | {r['epsilon']:g} | {r['group']} | {r['owners']:,} | **{r['ratio']:.2f}** | "
        f"{r['pulled']:.2f} | {r['covered']:.2f} | {r['covered_alone']:.2f} |\n"
        for r in rows
    ]

    return HEAD + "".join(lines)
