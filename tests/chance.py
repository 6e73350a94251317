"""Everything that tests draw without a seed, and the chance that it makes a right product's test
red.

`make lint` finds files that draw and are not listed, listed ones that draw nothing, and a sum above
`MOST`. Statistical tests have seeds: their stated false-alarm rates are of a choice that was made
once, not of each run.
"""

from __future__ import annotations

MOST = 1e-6
"""Chance that one run of all tests is red by what stands here."""
UNSEEDED = {
    "tests/pipelines/beam/support/fresh_noise.py": (
        1e-12,
        "the twin's 128 bits are the same in two executions",
    ),
    "tests/pipelines/beam/rounds/test_idempotent.py": (
        1e-12,
        "48 users of the twin say the same in four executions",
    ),
    "tests/servers/support/wrong_engines.py": (1e-12, "the twin's keys are the same in two lives"),
    "tests/servers/support/engine_worlds.py": (
        1e-9,
        "two of some thousand names of 32 bits are one, on one broker",
    ),
    "tests/servers/support/flink_kills.py": (
        1e-9,
        "two of a few prefixes of topics of 32 bits are one",
    ),
    "tests/servers/test_flink_program.py": (1e-9, "two of a few names of jobs of 32 bits are one"),
    "tests/servers/support/broker.py": (1e-12, "names only; a port that is taken is drawn again"),
}
"""Files, with the chance of a red test in one run, and of what."""
