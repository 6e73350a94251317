"""A file of options means one thing, or is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.command_line import files, meanstream, options, write_samples

LAUGHS = "epsilon:\n- &b0 [x, x]\n" + "".join(
    f"- &b{level} [*b{level - 1}, *b{level - 1}]\n" for level in range(1, 40)
)
"""A list of 2^40 texts, if it is written out."""
BAD = {
    "a key twice": (
        "epsilon: 1\nepsilon: 5",
        "config must have each option once, got 'epsilon' twice",
    ),
    "a key in two spellings": (
        "dead-letters: a.jsonl\ndead_letters: b.jsonl",
        "config must have each option once",
    ),
    "base 60": ("epsilon: 1:30", "'1:30'"),
    "yes for a number": ("horizon: yes", "'yes'"),
    "true for a number": ("epsilon: true", "epsilon must be a decimal number, got True"),
    "true for a place": ("sink: true", "sink must be text or a number, got True"),
    "yes for true": ("json: yes", "json must be true or false, got 'yes'"),
    "1 for true": ("json: 1", "json must be true or false, got 1"),
    "digits of another script": (
        "epsilon: \u0661",
        "epsilon must be a decimal number, got '\u0661'",
    ),
    "underscores": ("horizon: 4_0", "horizon must be a decimal number, got '4_0'"),
    "hexadecimal": ("horizon: 0x28", "'0x28'"),
    "a mapping": ("epsilon: {a: 1}", "epsilon must be a decimal number, got {'a': 1}"),
    "a list": ("epsilon: [1, 2]", "epsilon must be one value, got [1, 2]"),
    "a list of places": ("sink: [a, b]", "sink must be one value, got ['a', 'b']"),
    "another type": ("epsilon: !!timestamp 2013-01-01", "epsilon must be a decimal number"),
    "an object of Python": ("epsilon: !!python/object/apply:os.getcwd []", "config must be YAML"),
    "deep nesting": ("epsilon: " + "[" * 4000, "config must be YAML"),
    "lists of lists of aliases": (LAUGHS, "config must be YAML"),
    "a value in itself": ("epsilon: &a [*a]", "config must be YAML"),
    "an alias of a number": ("lower: &a x\nepsilon: *a", "lower must be a decimal number, got 'x'"),
    "two documents": ("epsilon: 1\n---\nepsilon: 2", "config must be YAML"),
    "no text": ("epsilon: \x00", "config must be YAML"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_what_could_mean_two_things_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    (tmp_path / "run.yaml").write_text(text)
    before = files(tmp_path)
    names = {line.partition(":")[0] for line in text.splitlines()}
    given = {
        name: value
        for name, value in options(tmp_path).items()
        if name not in names and name != "sink"
    }
    typed = [
        word
        for name, value in given.items()
        for word in ("--" + name.replace("_", "-"), str(value))
    ]
    assert (
        said in meanstream("run", "agents", "--config", str(tmp_path / "run.yaml"), *typed).message
    )
    assert files(tmp_path) == before


@pytest.mark.parametrize("typed", ["\u0661", "1_0", "\uff11"])
def test_numbers_on_the_command_line_are_decimal(typed: str, tmp_path: Path) -> None:
    assert (
        "epsilon must be a decimal number"
        in meanstream("run", "agents", "--epsilon", typed).message
    )


@pytest.mark.parametrize(
    "typed",
    [("--name", "n" * 100_000), ("--schedule", "s" * 100_000), ("--epsilon", "0x" + "f" * 100_000)],
)
def test_the_line_on_a_value_of_a_megabyte_is_short(typed: tuple[str, str], tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    given = [
        word for name, value in options(tmp_path).items() for word in (f"--{name}", str(value))
    ]
    ran = meanstream("run", "agents", *given, *typed)
    assert (ran.code, ran.err.count(b"\n")) == (2, 1)
    assert len(ran.err) < 4000
    assert ran.message.startswith(f"{typed[0][2:]} must be ")
    assert typed[1][:500] in ran.message
