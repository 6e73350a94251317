"""A public file of who may query whom: CSV with the columns agent and partner."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from meanstream.operators.validation import require

COLUMNS = ("agent", "partner")


def read_partners_file(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the partners of each agent, in the order of the rows.

    Raises
    ------
    ValueError
        Naming the option, the rule and the file.
    """
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False
    )
    try:
        table = csv.read_csv(path, convert_options=options)
        names = set(table.column_names)  # which are no UTF-8, perhaps
    except OSError as error:
        raise ValueError(
            f"partners must be a readable file, got {str(path)!r} ({error.strerror})"
        ) from None
    except (pa.ArrowException, UnicodeDecodeError):  # whose texts show rows
        raise ValueError(
            f"partners must be CSV with columns agent and partner, got {str(path)!r}"
        ) from None

    require(
        set(COLUMNS) <= names,
        "partners",
        "have columns agent and partner",
        str(path),
    )
    found: dict[str, list[str]] = {}

    for agent, partner in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True):
        require(
            bool(agent) and bool(partner),
            "partners",
            "name an agent and a partner in each row",
            str(path),
        )
        found.setdefault(agent, []).append(partner)

    return {agent: tuple(partners) for agent, partners in found.items()}
