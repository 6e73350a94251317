"""The distribution of users' numbers of samples, from a law's name or counted in a file."""

from __future__ import annotations

from pathlib import Path

from meanstream.operators.rounds.sizes import FORMS, SizeDistribution
from meanstream.operators.validation import closest_valid, require
from meanstream.streaming.sources.csv_file import NULLS


def read_sizes(text: str) -> SizeDistribution:
    """Read `point:k`, `poisson:l`, ... (`SizeDistribution.parse`) or `FILE.csv:COLUMN`: how often each value occurs.

    Notes
    -----
    **Privacy.** The distribution counts as public, and no epsilon covers how it was read off a file: count in data
    that are public, or have been published before.

    Raises
    ------
    ValueError
        If the text is neither, or the file cannot be read or has no such column. No value is shown.

    Examples
    --------
    >>> read_sizes("two:1,3,0.5").support.tolist()
    [1, 3]
    """
    file, separator, column = text.rpartition(":")
    if not separator or not file.endswith((".csv", ".csv.gz")):
        try:
            return SizeDistribution.parse(text)
        except ValueError as error:
            raise ValueError(str(error).replace(FORMS, f"{FORMS} or FILE.csv:COLUMN")) from None
    return SizeDistribution.from_counts(_counts(file, column))


def _counts(file: str, column: str) -> list[int]:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    convert = csv.ConvertOptions(
        include_columns=[column], column_types={column: pa.string()}, null_values=NULLS, strings_can_be_null=True
    )
    try:
        Path(file).open("rb").close()  # its errors are shorter than Arrow's
        with csv.open_csv(file) as reader:
            known = reader.schema.names
        require(column in known, "sizes", f"name a column of {file}{closest_valid(column, known)}", column)
        cells = csv.read_csv(file, convert_options=convert)[column].drop_null()
    except OSError as error:
        raise ValueError(f"sizes must name a readable file, got {file!r} ({error.strerror})") from None
    except pa.ArrowInvalid:
        raise ValueError(f"sizes must name a CSV file with a header, got {file!r}") from None
    require(len(cells) > 0, "sizes", f"name a column of {file} with values", column)
    counts: list[int] = pc.value_counts(cells).field("counts").to_pylist()
    return counts
