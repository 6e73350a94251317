"""Flex templates: metadata of the code's table, patterns that are the validation, and the
launcher's entry run."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.cloud.dataflow_v1beta3 import ParameterType, TemplateMetadata
from hypothesis import given
from hypothesis import strategies as st

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.pipelines.beam.template import template_forms as forms
from meanstream.pipelines.beam.template.launch_template import launch_template
from meanstream.pipelines.beam.template.template_parameters import (
    AGENTS,
    ROUNDS,
    TEMPLATES,
    Template,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, _from_secret_manager
from meanstream.pipelines.options.option_errors import BadOption
from tests.docker.test_images import BIN, instructions
from tests.pipelines.beam.support.agents_world import (
    ROUNDS_GIVEN,
    SETTINGS,
    assert_same_estimates,
    flawed_file,
)
from tests.pipelines.beam.support.secret_manager import secret_manager
from tests.pipelines.command_line import arguments, meanstream
from tests.streaming.support.rounds_world import SECRET

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "dataflow"
PLACE = "projects/a-project/secrets/noise/versions/3"
GOOD = {
    "source": ["gs://some-bucket/a/b.csv.gz", "/data/a.parquet", "kafka://broker:9092,other:9092/samples?group=a",
               "projects/some-project/subscriptions/samples"],
    "sink": ["gs://some-bucket/means.jsonl", "/data/means.jsonl", "kafka://[::1]:9092/means?create=3",
             "projects/some-project/topics/means"],
    "secret": [PLACE, "/run/secrets/noise"],
    "epsilon": ["1", "0.5", "1e-3", ".25"], "delta": ["1e-6", "0.00001"], "lower": ["-30", "-1.5e3", "0"],
    "schedule": ["preferred:10", "geometric:10,1.5", "every:1.5h"], "refresh": ["90s", "1d"], "lateness": ["0s", "2w"],
    "window": ["7d", "7d,1d", "session:30m", "week:sunday", "month@Europe/Berlin"],
    "horizon": ["40"], "until_end": ["true", "false"],
    "sizes": ["point:4", "lognormal:10,1", "unknown"], "option": ["probability_floor=0.1;degree=3"],
    "estimator": ["plan", "cummings.ratio"], "sdk_container_image": ["docker.pkg.dev/p/beam:0.2.0", "a@sha256:0f"],
    "values": ["x,y"], "name": ["flights of 2013"], "between_users": ["0", "0.5"],
    "quantiles": [".5,.9", "0.5"], "exceeds": ["30", "-1.5,3e1"], "histogram_share": ["0.1"],
}  # fmt: skip
BAD = {
    "source": ["samples.csv", "gs://some-bucket/", "gs://some-bucket/a.txt", "kafka://broker:9092", "http://a/b.csv",
               "projects/some-project/topics/samples", "kafka://user@broker/samples", "gs://B/a.csv"],
    "sink": ["-", "means.jsonl", "gs://some-bucket/means.csv", "projects/some-project/subscriptions/means"],
    "secret": ["0123456789abcdef0123456789abcdef", f"{PLACE[:-1]}latest", "MEANSTREAM_SECRET", "secrets/a/versions/1"],
    "epsilon": ["-1", "0", "0.0", "inf", "nan", "one", "", "1 ", "1\n", "1e9999"], "delta": ["0", "-1e-6"],
    "lower": ["nan", "-inf", "1,,2", "ten"], "schedule": ["always", "preferred:0", "every:", "geometric:10"],
    "refresh": ["90", "0s", "1y", "-1d"], "lateness": ["-1s", "soon"],
    "window": ["7", "7d,1d,1d", "session:", "days", "month@"],
    "horizon": ["0", "1.5", "-3"], "until_end": ["yes", "True", "1"], "sizes": ["point"], "option": ["a", "a=1;b"],
    "estimator": ["item", "mean", "PLAN"], "sdk_container_image": ["image", ":1"], "values": ["x", "x,"],
    "name": ["a/b", ""], "between_users": ["-1"],
    "quantiles": ["median", ".5;.9", ""], "exceeds": [",30", "nan"], "histogram_share": ["-0.1"],
}  # fmt: skip


def generator() -> Any:
    found = importlib.util.spec_from_file_location(
        "generate_metadata", FOLDER / "generate_templates.py"
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def metadata(template: Template) -> dict[str, Any]:
    return json.loads((FOLDER / f"{template.key}.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_metadata_are_what_the_code_says_and_what_dataflow_reads(template: Template) -> None:
    text = (FOLDER / f"{template.key}.json").read_text()
    assert text == generator().metadata_text(template), (
        "run python docker/dataflow/generate_templates.py"
    )
    read = TemplateMetadata.from_json(text)  # refuses names that it does not know
    assert read.supports_exactly_once
    assert not read.supports_at_least_once
    for described in read.parameters:
        assert described.label
        assert described.help_text
        assert re.fullmatch("[a-z_]+", described.name)
        assert bool(described.enum_options) == (described.param_type == ParameterType.ENUM)
        pattern = re.compile(described.regexes[0])
        assert not described.default_value or pattern.search(described.default_value), (
            described.name
        )
        assert all(pattern.search(option.value) for option in described.enum_options)
    with pytest.raises(Exception, match="has no field named"):
        TemplateMetadata.from_json(text.replace("helpText", "help"))


def pattern_of(name: str) -> tuple[Template, re.Pattern[str]]:
    """Give the committed pattern: the template that has the parameter, rounds only if agents has
    not."""
    for template in (AGENTS, ROUNDS):
        for described in metadata(template)["parameters"]:
            if described["name"] == name:
                return template, re.compile(described["regexes"][0])
    raise LookupError(name)


def required(template: Template) -> dict[str, str]:
    """Texts for what a template needs."""
    names = [name for name, parameter in template.parameters.items() if parameter.required]
    return {**{name: GOOD[name][0] for name in names if name in GOOD}, "upper": "100"}


@pytest.mark.parametrize("name", GOOD)
def test_a_pattern_takes_what_the_launcher_takes_and_refuses_what_it_refuses(name: str) -> None:
    template, pattern = pattern_of(name)
    for text in GOOD[name]:
        assert pattern.search(text), text
        template.read({**required(template), name: text})
    for text in BAD[name]:
        with pytest.raises(ValueError, match=name):
            template.read({**required(template), name: text}).options.settings()
        # Infinity is seen by the settings; a line end is one that only Python's $ lets stand behind
        # it.
        assert text in ("1e9999", "1\n") or not pattern.search(text), text


def test_a_pattern_that_is_wider_than_the_validation_would_be_seen() -> None:
    wide = re.compile(r"^[-0-9.e]+$")
    assert any(wide.search(text) for text in BAD["epsilon"])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_as_python_writes_them(value: float) -> None:
    assert forms.NUMBER.read("lower", repr(value)) == value
    positive = re.match(forms.POSITIVE.regex, repr(value)) is not None
    assert positive == (value > 0)
    assert math.copysign(1, value) > 0 or not re.match(forms.NOT_NEGATIVE.regex, repr(value))


def test_all_estimators_that_protect_users_can_be_chosen() -> None:
    [estimator] = [
        described
        for described in metadata(ROUNDS)["parameters"]
        if described["name"] == "estimator"
    ]
    assert {option["value"] for option in estimator["enumOptions"]} == set(ESTIMATORS) - {"item"}


AGENTS_GIVEN = (
    "--lower=0", "--upper=10", "--epsilon=1", "--delta=1e-6", "--schedule=every:7h", "--horizon=12", "--lateness=4h",
    "--id=id", "--name=test",
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "changes", "message"),
    [
        ("agents", ["--epsilon=0"], "epsilon must be a positive number, got '0'"),
        ("agents", ["--lower=10", "--upper=1"], "lower must be below upper (1.0), got 10.0"),
        ("agents", ["--delta=2"], "delta must lie strictly between 0 and 1, got 2.0"),
        ("agents", ["--calibration=classical", "--epsilon=3"], "epsilon must"),
        ("agents", ["--source=kafka://b:9092/s", "--refresh=never"], "refresh must be a duration such as"),
        ("agents", ["--refresh=1h"], "refresh must be left out where the source is a file, got '1h'"),
        ("agents", ["--until_end=true"], "until_end must be left out where the source is no Kafka topic, got True"),
        ("agents", ["--idle_seconds=3"], "idle_seconds must be left out where the source is no Kafka topic, got 3.0"),
        ("agents", ["--dead_letters=/tmp/d.jsonl"], "dead_letters must be left out where the source is a file"),
        ("agents", ["--releases=/tmp/e.jsonl"], "releases must be another place than sink, got '/tmp/e.jsonl'"),
        ("agents", ["--source=kafka://b:9092/s", "--refresh=1m"], "sink must be a topic where the source has no end"),
        ("agents", ["--source=projects/some-project/subscriptions/samples", "--refresh=1m", "--sink=kafka://b:9092/e"],
         "runner must be DataflowRunner, or on one machine BundleBasedDirectRunner, where Pub/Sub is read"),
        ("agents", ["--secret=a secret of more than sixteen bytes"], "secret must be projects/PROJECT/secrets/NAME/"),
        ("agents", ["--epsilonn=1"], "epsilonn must be a parameter of this template or an option of Beam; did you"),
        ("agents", ["--runner=DirectRunner"], "runner must be one of FnApiRunner, PrismRunner, FlinkRunner, Dataflow"),
        ("agents", ["--runner=DataflowRunner"], "sdk_container_image must be given on Dataflow"),
        ("agents", ["--runner=DataflowRunner", "--sdk_container_image=a/b:1", "--temp_location=gs://some-bucket/t",
                    "--dataflow_service_options=streaming_mode_at_least_once"],
         "dataflow_service_options must leave every sample exactly once, got 'streaming_mode_at_least_once'"),
        ("rounds", ["--runner=DataflowRunner", "--sdk_container_image=a/b:1"],
         "source must be in a bucket or a topic on Dataflow: a worker's disk goes with it, got '/none.csv'"),
        ("rounds", ["--window=7d,1d"], "user_budget must be at least 7 for sliding windows '7d,1d'"),
        ("rounds", ["--estimator=item"], "estimator must be one of "),
        ("rounds", ["--option=degree"], "option must be NAME=VALUE, several separated by ';', got 'degree'"),
    ],
)  # fmt: skip
def test_a_bad_parameter_is_one_line_before_anything_is_built(
    key: str, changes: list[str], message: str
) -> None:
    base = {
        "agents": ["--source=/none.csv", "--sink=/tmp/e.jsonl", *AGENTS_GIVEN],
        "rounds": [
            "--source=/none.csv",
            "--sink=/tmp/e.jsonl",
            "--lower=0",
            "--upper=1",
            "--epsilon=1",
            "--window=7d",
            "--name=test",
        ],
    }[key]
    given_here = {
        one.partition("=")[0]: one
        for one in [*base, f"--secret={PLACE}", "--runner=FnApiRunner", *changes]
    }
    with pytest.raises(BadOption) as refused:
        launch_template(key, list(given_here.values()))
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_the_launchers_file_ends_with_one_line_and_code_2() -> None:
    for key in TEMPLATES:
        ran = subprocess.run(
            [sys.executable, FOLDER / f"launch_{key}.py", "--epsilon=-1", "--runner=FnApiRunner"],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr == "meanstream: source must be given, got None\n"


def test_agents_of_a_file_are_the_engines(tmp_path: Path) -> None:
    source = flawed_file(tmp_path)
    (tmp_path / "secret").write_text(SECRET)
    names = ("sink", "releases", "notices")
    engine = {name: tmp_path / f"engine.{name}.jsonl" for name in names}
    given = [*AGENTS_GIVEN, "--quantiles=.25,.9", "--exceeds=3"]
    typed = {**dict(one.removeprefix("--").split("=") for one in given), "source": source, **engine,
             "secret_file": tmp_path / "secret", "store": tmp_path / "engine.db"}  # fmt: skip
    assert meanstream("run", "agents", *arguments(typed), "--quiet").code == 0
    _from_secret_manager.cache_clear()
    with secret_manager({PLACE: SECRET.encode()}) as asked:
        places = [f"--{name}={tmp_path / f'beam.{name}.jsonl'}" for name in names]
        launch_template(
            "agents",
            [*given, f"--source={source}", *places, f"--secret={PLACE}", "--runner=FnApiRunner"],
        )
    assert asked, "the secret was read on the workers"
    for name in names:
        here = sorted((tmp_path / f"beam.{name}.jsonl").read_bytes().splitlines())
        there = sorted(engine[name].read_bytes().splitlines())
        if name == "sink":
            assert_same_estimates(here, there, SETTINGS)
            assert all(len(json.loads(line)["quantiles"]) == 2 for line in here)
        else:
            assert here == there != []


def test_rounds_of_a_bucket_are_the_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is a folder: Beam's file systems are asked for gs://, and answer with local
    files."""
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.io.localfilesystem import LocalFileSystem

    local = LocalFileSystem(None)
    monkeypatch.setattr(FileSystems, "get_filesystem", lambda _path: local)
    path_of = lambda path: str(tmp_path / path.removeprefix("gs://some-bucket/"))  # noqa: E731
    for name in ("open", "create"):
        good = getattr(LocalFileSystem, name)
        monkeypatch.setattr(
            LocalFileSystem,
            name,
            lambda self, path, *more, good=good, **named: good(self, path_of(path), *more, **named),
        )
    source = flawed_file(tmp_path)
    (tmp_path / "secret").write_text(SECRET)
    engine = {**ROUNDS_GIVEN, "source": source, "sink": tmp_path / "engine.jsonl", "store": tmp_path / "engine.db",
              "secret_file": tmp_path / "secret"}  # fmt: skip
    assert meanstream("run", "rounds", *arguments(engine), "--quiet").code == 0
    launch_template("rounds", [
        *(f"--{name}={value}" for name, value in ROUNDS_GIVEN.items()), "--source=gs://some-bucket/samples.csv",
        "--sink=gs://some-bucket/means.jsonl", f"--secret={tmp_path / 'secret'}", "--runner=FnApiRunner",
    ])  # fmt: skip
    assert (
        (tmp_path / "means.jsonl").read_bytes() == (tmp_path / "engine.jsonl").read_bytes() != b""
    )


def test_the_launchers_image_has_the_workers_packages_and_no_others() -> None:
    path = FOLDER / "Dockerfile"
    assert (
        subprocess.run([BIN / "hadolint", path], capture_output=True, check=False).returncode == 0
    )
    assert instructions(path, "FROM") == ["${LAUNCHER} AS launcher", "${WORKERS}"]
    assert not any("install" in run for run in instructions(path, "RUN"))
    assert instructions(path, "USER") == ["10001:10001"]
    copied = [
        word
        for line in instructions(path, "COPY")
        if "--from" not in line
        for word in line.split()[:-1]
    ]
    assert sorted(copied) == sorted(f"launch_{key}.py" for key in TEMPLATES)
    assert "FLEX_TEMPLATE_PYTHON_PY_FILE=/template/launch_${TEMPLATE}.py" in instructions(
        path, "ENV"
    )
    assert [word.partition("=")[0] for word in instructions(path, "ARG")] == [
        "WORKERS",
        "LAUNCHER",
        "TEMPLATE",
    ]
    assert not any(word.endswith(("latest", ":")) for word in instructions(path, "ARG"))


def test_a_file_of_the_secret_is_a_workers_file() -> None:
    from meanstream.pipelines.beam.template.template_places import template_secret_place

    assert template_secret_place("/run/secrets/noise") == SecretLocation(file="/run/secrets/noise")
    assert template_secret_place(PLACE) == SecretLocation(resource=PLACE)
