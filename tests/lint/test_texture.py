"""What the lints of texture and of reach find, in small sources that are wrong."""

from __future__ import annotations

from tests.lint.core_reach import used_by_rings_only
from tests.lint.sources import Source
from tests.lint.texture import comment_lines, counts, is_better, measures, rounded, texture_faults

WALL = "\n".join(f"    y{n} = {n}" for n in range(16))
SAMPLE = f'''
def airy(x):
    """Say it."""
    # a thought
    a, b = x, 1
    a, b = b, a

    found = 1 if a else 2  # not a line of its own
    # noqa
    return """
# text
""", found


def wall():
{WALL}
'''


def test_the_measures_of_a_file_are_counted() -> None:
    count = counts(Source("operators/x.py", SAMPLE))
    # Bodies: nine lines from the comment to the text's end, and the wall's sixteen.
    assert count["body"] == 9 - 1 + 16
    assert (count["blank"], count["commented"]) == (1, 0)
    assert (count["packed"], count["conditional"]) == (1, 1)
    assert (count["long"], count["walls"]) == (1, 1)
    assert (count["locals"], count["generic"]) == (5 + 16, 1)
    assert comment_lines(Source("operators/x.py", SAMPLE)) == {4}


def test_a_long_function_with_a_break_is_no_wall_and_a_large_one_is_counted() -> None:
    broken = WALL.replace("    y8 = 8", "\n    y8 = 8")
    count = counts(Source("operators/x.py", f"def f():\n{broken}\n"))
    assert (count["long"], count["walls"], count["large_functions"]) == (1, 0, 0)
    large = "def f():\n    return [" + "1, " * 400 + "]\n"
    count = counts(Source("operators/x.py", large))
    assert (count["large_functions"], count["wide"], count["large_files"]) == (1, 1, 0)


def test_a_number_that_gets_worse_is_reported_and_a_better_one_is_not() -> None:
    values = measures(counts(Source("operators/x.py", SAMPLE)))
    limits = {name: rounded(name, value) for name, value in values.items()}
    assert list(texture_faults({"operators": values}, {"operators": limits})) == []

    airy = {**values, "blank_lines": values["blank_lines"] + 9, "packed_assignments": 0}
    assert list(texture_faults({"operators": airy}, {"operators": limits})) == []
    assert is_better("blank_lines", 9, 8)
    assert is_better("wide_lines", 8, 9)

    worse = {**values, "blank_lines": 0, "wide_lines": 1}
    assert list(texture_faults({"operators": worse}, {"operators": limits})) == [
        "operators/ must have blank lines of at least 40, got 0.0",
        "operators/ must have wide lines of at most 0, got 1.0",
    ]


def test_a_core_module_that_only_a_ring_uses_is_found() -> None:
    files = [
        Source("pipelines/commands/a.py", "from meanstream.operators.b import f\n"),
        Source("operators/b.py", 'X = "meanstream.operators.c:Named"\n'),
        Source("operators/c.py", ""),
        Source("operators/d.py", "from meanstream.operators import e\n"),
        Source("operators/e.py", ""),
        Source("meanstream/lab/f.py", "from meanstream.operators import d\n"),
        Source("pipelines/beam/g.py", "import meanstream.operators.h\n"),
        Source("operators/h.py", ""),
    ]
    reports = list(used_by_rings_only(files))
    assert [report.split()[0] for report in reports] == [
        "operators/d.py",
        "operators/e.py",
        "operators/h.py",
    ]
