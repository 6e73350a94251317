"""The tables of docs/privacy.md are those of `make audit`, about what the registries hold today."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meanstream.lab.audits.audit_rounds import audit_rounds_rows
from meanstream.lab.evidence.mechanisms_audit import mechanism_audits
from tests.privacy.evidence import (
    AUDITS,
    AUDITS_OF_WHAT_IS_RIGHT,
    BEGIN,
    END,
    Found,
    audit_lines,
    false_alarms,
    written,
)
from tests.privacy.test_pairs_and_sites_twins import LEDGER_TWINS
from tests.privacy.test_twins import TWINS

PAGE = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")


def tables() -> dict[str, list[str]]:
    """First cells of the rows of each table, by the command above it."""
    found: dict[str, list[str]] = {}
    for line in PAGE.split(BEGIN)[1].split(END)[0].splitlines():
        if line.startswith("`"):
            rows = found.setdefault(line.split("`")[1], [])
        elif line.startswith("| ") and not line.startswith(("| audited", "| what")):
            rows.append(line.split("|")[1].strip().strip("`"))
    return found


def test_the_page_has_every_audit_and_every_mechanism() -> None:
    found = tables()
    commands = [command.split(" --seed")[0] for command in found]
    alarms = f"python -m tests.privacy.evidence --alarms {AUDITS_OF_WHAT_IS_RIGHT}"
    assert commands == [*AUDITS, "python -m tests.privacy.evidence --twins", alarms]
    by_command = dict(zip(commands, found.values(), strict=True))
    assert f"of {AUDITS_OF_WHAT_IS_RIGHT:,} audits of 200 canaries each **0** blamed" in PAGE
    assert by_command["meanstream audit mechanism"] == list(
        mechanism_audits(epsilon=1.0, delta=1e-6)
    )
    rows, _ = audit_rounds_rows([], epsilon=1.0, users=2_000, seed=1)
    estimators = dict.fromkeys(row.name.split(".")[0] for row in rows)
    assert list(
        dict.fromkeys(name.split(".")[0] for name in by_command["meanstream audit rounds"])
    ) == list(estimators)
    assert by_command["python -m tests.privacy.evidence --twins"] == [
        *TWINS,
        *LEDGER_TWINS,
    ]
    assert "violated" not in PAGE.split(BEGIN)[1].split(END)[0].replace(", 0 violated", "")


def test_a_hundred_audits_blame_nobody() -> None:
    """The page has ten thousand. False alarms: 1e-6 for each row; a bound lies above the claim once
    in twenty."""
    blamed, above = false_alarms(100, seed=8)
    assert blamed == 0
    assert {name: told for name, (told, _) in above.items()}["engine"] == 100
    assert all(over < 5 + 6 * np.sqrt(5) for _, over in above.values())


def test_what_is_written_replaces_what_was() -> None:
    row = {
        "name": "a",
        "claimed": 1.0,
        "delta": 1e-6,
        "proved": 1.2,
        "ceiling": 0.0,
        "violated": True,
        "fault": None,
    }
    lines = list(audit_lines(Found("x", [row], [], 1, 0.0)))
    assert lines == ["| `a` **violated**  | 1 at 1e-06 | 1.200 | 0 |"]
    page = written(f"head\n{BEGIN}\nold\n{END}\ntail\n", lines)
    assert page == f"head\n{BEGIN}\n{lines[0]}\n{END}\ntail\n"
