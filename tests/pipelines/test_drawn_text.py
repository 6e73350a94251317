"""Names of groups, columns and categories are drawn as they are, whatever they hold."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow as pa
import pytest

import meanstream
from meanstream.pipelines.drawn_text import drawn_text
from tests.pipelines.command_line import SECRET
from tests.pipelines.command_line import meanstream as command

mpl.use("Agg")

NAMES = ("$\\frac$", "$a$ $b", "_under", "\\", "<b>x</b>", "\x1b[31mred", "line\nend", "a\u202eb")
COLUMN = "$\\group{"
VALUE = "$\\value_"
PRIVACY: dict[str, Any] = {"epsilon": 8.0, "secret": SECRET, "name": "names"}


def table(names: tuple[str, ...]) -> pa.Table:
    rows = [
        (name, f"user {i}", float(i % 7), 1_700_000_000 + i) for i in range(90) for name in names
    ]
    return pa.table(
        dict(zip((COLUMN, "user", VALUE, "time"), zip(*rows, strict=True), strict=True))
    )


def drawn_names(axes: Any) -> str:
    """Draw a picture, and give all text on it."""
    axes.figure.savefig(BytesIO())
    texts = [*axes.get_yticklabels(), *(axes.get_legend().texts if axes.get_legend() else ())]
    return " ".join(text.get_text().replace("\\$", "$") for text in texts)


@pytest.mark.parametrize("kind", ["means", "ranks"])
def test_groups_of_any_name_are_drawn(kind: str) -> None:
    given = {"lower": 0, "upper": 10, "delta": 1e-6, **PRIVACY}
    result = meanstream.private_means(table(NAMES), by=COLUMN, value=VALUE, **given)
    text = drawn_names(result.plot(kind=kind))
    for name in NAMES[:5]:
        assert name in text
    for shown in (text, repr(result), result._repr_html_()):
        assert "\\x1b[31mred" in shown
        assert not {"\x1b", "\u202e"} & {*shown}


def test_categories_of_any_name_are_in_the_legend_and_the_report(tmp_path: Path) -> None:
    names = NAMES[:5]
    result = meanstream.private_windows(
        table(names),
        by="user",
        value=COLUMN,
        time="time",
        window="45s",
        categories=names,
        **PRIVACY,
    )
    text = drawn_names(result.plot())
    for name in names:
        assert name in text

    rows = ["user,value,time", *(f"u{i},{names[i % 5]},{1_700_000_000 + i}" for i in range(200))]
    (tmp_path / "s.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "c.txt").write_text("\n".join(names) + "\n")
    words = f"run rounds --window 1h --epsilon 8 --name names --quiet --source {tmp_path}/s.csv"
    words += f" --categories {tmp_path}/c.txt --store {tmp_path}/s.db --sink {tmp_path}/m.jsonl"
    environment = {"MEANSTREAM_SECRET": SECRET}
    assert command(*words.split(), environment=environment).code == 0
    report = tmp_path / "report.html"
    ran = command("report", str(report), "--store", f"{tmp_path}/s.db")
    assert (ran.code, ran.err) == (0, b"")
    assert "<b>x</b>" not in report.read_text()


def test_without_it_a_name_is_read_as_a_formula() -> None:
    """What the tests above would find."""
    from matplotlib.figure import Figure

    for name, problem in ((NAMES[0], ValueError), (drawn_text(NAMES[0]), None)):
        figure = Figure()
        figure.text(0, 0, name)
        if problem is None:
            figure.savefig(BytesIO())
        else:
            with pytest.raises(problem):
                figure.savefig(BytesIO())
