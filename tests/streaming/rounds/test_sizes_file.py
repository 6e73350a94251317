"""How often each user occurs in a file of samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.streaming.rounds.sizes_file import read_sizes, read_sizes_of


def test_every_value_of_the_column_is_a_user(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text('tailnum,delay\nN1,2\n"N,2",3\nN1,4\n,9\nNA,9\nN1,5\n', encoding="utf-8")
    found = read_sizes(f"{file}:tailnum")
    assert found.support.tolist() == [1, 3]
    assert found.probability.tolist() == [0.5, 0.5]


def test_numbers_are_names_too(tmp_path: Path) -> None:
    file = tmp_path / "a:b.csv"
    file.write_text("user,x\n007,1\n7,1\n7,1\n", encoding="utf-8")
    assert read_sizes(f"{file}:user").support.tolist() == [1, 2]


def test_there_are_as_many_as_the_column_has_names_unless_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text('tailnum,delay\nN1,2\n"N,2",3\nN1,4\n,9\nNA,9\nN3,5\n', encoding="utf-8")
    for given, expected in ((None, 3), (40, 40)):
        sizes, found = read_sizes_of(f"{file}:tailnum", given, who="users")
        assert found == expected
        assert sizes.probability.tolist() == pytest.approx([2 / 3, 1 / 3])
    with pytest.raises(
        ValueError, match=r"^users must be given unless sizes are counted in FILE\.csv:COLUMN$"
    ):
        read_sizes_of("point:3", None, who="users")


@pytest.mark.parametrize(
    ("header", "other"), [("Time;Shop;Amount", "';'"), ("Time\tShop\tAmount", r"'\\t'")]
)
def test_other_separators_are_named(header: str, other: str, tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    file.write_text(f"{header}\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=f"; columns must be separated by commas, and this header has {other}, got"
    ):
        read_sizes(f"{file}:Shop")


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text("tailnum,delay\n,\n", encoding="utf-8")
    with pytest.raises(
        ValueError,
        match=r"^sizes must name a column of .*; did you mean 'tailnum'\?, got 'tailnumber'$",
    ):
        read_sizes(f"{file}:tailnumber")
    with pytest.raises(
        ValueError, match=r"^sizes must name a column of .* with values, got 'tailnum'$"
    ):
        read_sizes(f"{file}:tailnum")
    with pytest.raises(ValueError, match=r"^sizes must name a readable file"):
        read_sizes(f"{tmp_path / 'none.csv'}:tailnum")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ValueError, match=r"^sizes must name a CSV file with a header"):
        read_sizes(f"{tmp_path / 'empty.csv'}:tailnum")
    with pytest.raises(
        ValueError, match=r"^sizes must be one of point:k.* or FILE.csv:COLUMN, got 'weekly'$"
    ):
        read_sizes("weekly")
