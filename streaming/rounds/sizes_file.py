"""The distribution of users' numbers of samples, from a law's name or counted in a file."""

from __future__ import annotations

from pathlib import Path

from meanstream.operators.rounds.user_sizes import FORMS, SizeDistribution
from meanstream.operators.validation import closest_valid, require
from meanstream.streaming.sources.formats.csv_file import NULLS, csv_separator_hint


def read_sizes(text: str) -> SizeDistribution:
    """Read `point:k`, `poisson:l`, ...

    (`SizeDistribution.parse`) or `FILE.csv:COLUMN`: how often each value occurs.

    Notes
    -----
    **Privacy.** The distribution counts as public, and no epsilon covers how it was read off a file: count in data
    that are public, or have been published before.

    Examples
    --------
    >>> read_sizes("two:1,3,0.5").support.tolist()
    [1, 3]
    """
    return _read(text)[0]


def read_sizes_of(text: str, number: int | None, *, who: str) -> tuple[SizeDistribution, int]:
    """Read the same, and how many users or agents there are.

    As many as the column has names, unless a number is given.

    Notes
    -----
    **Privacy.** The number counts as public, as the distribution does.

    Examples
    --------
    >>> read_sizes_of("point:3", 40, who="users")[1]
    40
    """
    sizes, counted = _read(text)
    n_users = counted if number is None else number
    if n_users is None:
        raise ValueError(f"{who} must be given unless sizes are counted in FILE.csv:COLUMN")

    return sizes, n_users


def _read(text: str) -> tuple[SizeDistribution, int | None]:
    """Read a law, or count in a file, which tells how many there are, too."""
    file, separator, column = text.rpartition(":")
    if separator and file.endswith((".csv", ".csv.gz")):
        counts = _counts(file, column)
        return SizeDistribution.from_counts(counts), len(counts)

    try:
        return SizeDistribution.parse(text), None
    except ValueError as error:
        raise ValueError(str(error).replace(FORMS, f"{FORMS} or FILE.csv:COLUMN")) from None


def _counts(file: str, column: str) -> list[int]:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    convert = csv.ConvertOptions(
        include_columns=[column],
        column_types={column: pa.string()},
        null_values=NULLS,
        strings_can_be_null=True,
    )

    try:
        Path(file).open("rb").close()  # its errors are shorter than Arrow's
        with csv.open_csv(file) as reader:
            column_names = reader.schema.names

        hint = f"{closest_valid(column, column_names)}{csv_separator_hint(column_names)}"
        require(column in column_names, "sizes", f"name a column of {file}{hint}", column)
        cells = csv.read_csv(file, convert_options=convert)[column].drop_null()
    except OSError as error:
        raise ValueError(
            f"sizes must name a readable file, got {file!r} ({error.strerror})"
        ) from None
    except pa.ArrowInvalid:
        raise ValueError(f"sizes must name a CSV file with a header, got {file!r}") from None

    require(len(cells) > 0, "sizes", f"name a column of {file} with values", column)
    counts: list[int] = pc.value_counts(cells).field("counts").to_pylist()
    return counts
