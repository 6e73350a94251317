"""What the checks of `make lint` would find, in small sources that are wrong; the tree itself is
checked there."""

from __future__ import annotations

import pytest

from tests.lint.banned_words import docstring_faults, page_faults, source_faults
from tests.lint.draws import unseeded
from tests.lint.imports import clients_elsewhere, named_modules, points_up, strings_that_point_up
from tests.lint.prose import stale_modules, stale_paths
from tests.lint.public_names import estimators_named, unused
from tests.lint.sources import Source


def test_a_client_that_is_imported_elsewhere_is_found() -> None:
    here = Source(
        "meanstream/x.py", "def f():\n    from confluent_kafka.admin import AdminClient\n"
    )
    there = Source("streaming/store/database.py", "import sqlite3\n")
    assert list(clients_elsewhere([here, there])) == [
        "meanstream/x.py must import confluent_kafka from streaming/kafka/connection/kafka_client.py"
    ]
    pubsub = Source("meanstream/x.py", "from google.cloud import pubsub_v1, storage\n")
    assert len(list(clients_elsewhere([pubsub]))) == 1


def test_a_module_that_a_string_names_is_found() -> None:
    text = 'A = {"x": "meanstream.streaming.clock:Clock"}\ndef f():\n    """meanstream.beam"""\n    return "meanstream.no"'  # noqa: E501
    assert named_modules(Source("operators/x.py", text)) == {"meanstream.streaming.clock"}
    assert len(list(strings_that_point_up([Source("operators/x.py", text)]))) == 1


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ("meanstream.operators.noise.keyed", "meanstream.lab.papers.dame.dame"),
        (
            "meanstream.lab.papers.colme.pairwise_agents",
            "meanstream.lab.papers.cummings.known_sizes",
        ),  # of one layer
        ("meanstream.streaming.sources.formats.csv_file", "meanstream.streaming.open_source"),
        ("meanstream.streaming.clock", "meanstream.pipelines.beam.rounds.round_transforms"),
    ],
)
def test_a_name_that_points_up_is_found(user: str, named: str) -> None:
    assert points_up(user, named)
    assert not points_up(
        "meanstream.operators.estimators.registry", "meanstream.operators.estimators.one_shot"
    )
    assert not points_up(user, user)


def test_a_name_that_is_used_nowhere_is_found() -> None:
    defined = (
        "class A: ...\nclass B: ...\ndef f() -> A: ...\ndef g(): ...\ndef _k(): "
        "...\n@app.command()\ndef h(): ...\n"
    )
    files = [
        Source("meanstream/a.py", defined),
        Source("tests/a.py", "from meanstream.a import f\ndef unused(): ...\n"),
    ]
    assert list(unused(files)) == [
        "meanstream/a.py:2 B is used nowhere",
        "meanstream/a.py:4 g is used nowhere",
    ]


@pytest.mark.parametrize(
    "text",
    [
        'CURATOR = "cummings.ratio"',
        'DIFFER = ("kent.linf",)',
        'best = by_name["plan"]',
        'print(f"take {x} or one_shot")',
        'if name.startswith("kent"): pass',
    ],
)
def test_a_string_that_names_an_estimator_is_found(text: str) -> None:
    assert len(list(estimators_named([Source("meanstream/x.py", text)]))) == 1
    assert not list(
        estimators_named(
            [Source("meanstream/x.py", f"def f():\n    '''For example {text!r}.'''\n")]
        )
    )


def test_a_stale_name_is_found() -> None:
    gone = ["operators/noise/moved.py", "no_such_file.py", "docs/no_such_folder/"]
    kept = ["operators/noise/keyed.py", "operators/noise/keyed.py", "noise/keyed.py", "docs/"]
    assert stale_paths(" and ".join(f"`{name}`" for name in gone + kept)) == gone
    gone = ["meanstream.streaming.nine", "meanstream.operators.agents.running_mean.PrivateMedian"]
    kept = ["meanstream.operators.agents.running_mean.PrivateMean", "meanstream.beam"]
    assert stale_modules(" and ".join(f"`{name}`" for name in gone + kept)) == gone


@pytest.mark.parametrize(
    "text",
    [
        "rng = np.random.default_rng()",
        "key = os.urandom(32)",
        "import secrets\nname = secrets.token_hex(4)",
        "from uuid import uuid4\nname = uuid4().hex",
        "import random\nx = random.gauss(0, 1)",
    ],
)
def test_a_draw_without_a_seed_is_found(text: str) -> None:
    files = [
        Source("tests/x.py", text),
        Source("tests/y.py", "import random\nrng = random.Random(1)\nrng.gauss()\n"),
    ]
    assert len(list(unseeded(files, {}))) == 1
    assert list(unseeded(files, {"tests/x.py": (1e-9, "")})) == []
    assert len(list(unseeded(files, {"tests/x.py": (1e-3, "")}))) == 1
    assert len(list(unseeded(files, {"tests/x.py": (0.0, ""), "tests/y.py": (0.0, "")}))) == 1


def test_a_page_that_is_hard_to_read_is_found() -> None:
    plain = "# A page\n\nRead this first. It is short.\n\n```\nnobody\n```\n"
    assert list(page_faults("a.md", plain)) == []
    long = (
        "This is a sentence that has more words than a reader can keep in mind at once, " * 2
        + "and still it goes on."
    )
    assert [
        fault.partition(" has ")[2].partition(" of ")[0]
        for fault in page_faults("a.md", f"{long}\n")
    ][:1] == ["a median"]
    assert len(list(page_faults("a.md", f"{long} {'It is short. ' * 4}"))) == 1
    assert list(page_faults("a.md", "It is told to nobody.\n\n| a | anew |\n")) == [
        "a.md says 'anew'",
        "a.md says 'nobody'",
        "a.md says 'told'",
    ]
    assert len(list(page_faults("a.md", "The store keeps what was spent. What is my mean?\n"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        'raise ValueError(f"x must be so many, got {x}")',
        'x = "the answer that nobody reads"',
        '_log.warning("what is written goes on")',
        'def f(x: Annotated[int, cli_option("' + "word " * 36 + '", INPUT)]): ...',
        '@app.command()\ndef f():\n    """' + "Word " * 36 + '."""\n',
    ],
)
def test_a_text_of_a_translation_is_found(text: str) -> None:
    assert len(list(source_faults(Source("meanstream/x.py", text)))) == 1
    kept = 'def f():\n    """Nobody else reads this."""\n    raise ValueError("x must be positive, got -1")\n'
    assert list(source_faults(Source("meanstream/x.py", kept))) == []
    shown = Source(
        "meanstream/x.py",
        'class A:\n    """It is told."""\n    def b(self):\n        """Nobody."""\n',
    )
    assert [fault.partition(" says ")[2] for fault in docstring_faults(shown, {"A"})] == [
        "'told' to the reader",
        "'nobody' to the reader",
    ]
    assert list(docstring_faults(shown, {"B"})) == []
