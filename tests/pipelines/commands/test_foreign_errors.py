"""Errors that are not ours: their text may show what stands in a file, and is in no line."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.operators.validation import require
from meanstream.pipelines.options.option_errors import BadOption, Refusals, refusing_options
from tests.pipelines.command_line import SECRET, meanstream, options, write_samples

SAID = r"^options must be such that they can be read, got UnicodeDecodeError in test_foreign_errors"


def read_a_value() -> None:
    b"12.5\xff".decode()


def test_the_text_of_a_foreign_error_is_not_shown() -> None:
    with pytest.raises(BadOption, match=SAID), refusing_options():
        read_a_value()

    refusals = Refusals()
    with refusals.collecting():
        read_a_value()
    with pytest.raises(BadOption, match=SAID):
        refusals.end()


def test_the_text_of_ours_is() -> None:
    with (
        pytest.raises(BadOption, match=r"^epsilon must be positive, got -1.0$"),
        refusing_options(),
    ):
        require(False, "epsilon", "be positive", -1.0)


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("covariates", ()),
        ("partners", ("--schedule", "round_robin", "--stddev", "10")),
    ],
)
def test_a_header_that_is_no_text_names_its_file(
    option: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    write_samples(tmp_path / "flights.csv")
    public = tmp_path / "public.csv"
    public.write_bytes(b"tailnum,agent,partner,\xffsize\nN1,N1,N2,3\n")
    given = options(tmp_path)
    if option == "partners":
        del given["releases"]
    words = [w for name, value in given.items() for w in (f"--{name}", str(value))]
    ran = meanstream(
        *("run", "agents", *words, *more, f"--{option}", str(public)),
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert ran.code == 2
    assert ran.message.startswith(f"{option} must be CSV with ")
    assert str(public) in ran.message
