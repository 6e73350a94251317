"""A run, submitted to Dataflow as far as that goes offline, depends on nothing of the machine
that submits it.

Beam's Dataflow runner translates the pipeline and writes the job, as for a template; nothing is
sent. Then every byte of it is searched, whatever it is packed in, and every function and coder is
loaded in a process that shares nothing with this one but the installed packages. Each check is
tried on pipelines that are wrong.
"""

from __future__ import annotations

import operator
import os
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import typecoders
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

from meanstream.pipelines.beam.commands import dataflow_pipelines, run_on_dataflow
from meanstream.streaming.events.encode import EventLines
from tests.pipelines.beam.support.portability import (
    ROOT,
    Submitted,
    broken,
    payloads,
    pickled_elements,
    revealed,
    submit,
)
from tests.pipelines.command_line import meanstream

SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of tests only
PLACE = "projects/some-project/secrets/noise/versions/1"
AGENTS = (
    "--lower=0",
    "--upper=10",
    "--epsilon=1",
    "--delta=1e-6",
    f"--secret-file={PLACE}",
    "--id=id",
    "--name=test",
)
ROUNDS = (
    "--lower=0",
    "--upper=10",
    "--epsilon=1",
    "--window=1d",
    f"--secret-file={PLACE}",
    "--name=test",
)
TOPIC, FILE = "kafka://broker.example:9092", "gs://some-bucket"
RUNS = {
    "agents of a topic": (
        "agents", *AGENTS, f"--source={TOPIC}/samples", "--refresh=1m", f"--sink={TOPIC}/estimates",
        f"--releases={TOPIC}/releases", f"--population={TOPIC}/population", f"--notices={TOPIC}/notices",
        f"--dead-letters={TOPIC}/dead-letters",
    ),
    "agents of a subscription": (
        "agents", *AGENTS, "--source=projects/some-project/subscriptions/samples", "--refresh=1m",
        "--sink=projects/some-project/topics/estimates", "--dead-letters=projects/some-project/topics/dead-letters",
    ),
    "agents of a file": (
        "agents", *AGENTS, f"--source={FILE}/samples.csv.gz", f"--sink={FILE}/estimates.jsonl",
        f"--releases={FILE}/releases.jsonl",
    ),
    "rounds of a topic": (
        "rounds", *ROUNDS, f"--source={TOPIC}/samples", f"--sink={TOPIC}/means", "--user-budget=5", "--id=id",
    ),
    "rounds of a subscription": (
        "rounds", *ROUNDS, "--source=projects/some-project/subscriptions/samples", "--window=session:30m",
        "--sink=projects/some-project/topics/means", "--estimator=dame", "--sizes=poisson:5", "--users=1000",
    ),
    "rounds of a file": (
        "rounds", *ROUNDS, f"--source={FILE}/samples.parquet", f"--sink={FILE}/means.jsonl",
        "--estimator=cummings.known_sizes", "--sizes=point:4",
    ),
}  # fmt: skip


def once(arguments: Iterable[str]) -> list[str]:
    """Let the last of several values of a parameter stand."""
    key, *rest = arguments
    return [key, *{argument.partition("=")[0]: argument for argument in rest}.values()]


@pytest.fixture(scope="module", autouse=True)
def needles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What of this machine may be nowhere; most of it is planted, to be told from anything else."""
    tmp_path = tmp_path_factory.mktemp("portability")
    planted = {"USER": "user-of-this-machine", "LOGNAME": "login-of-this-machine", "HOME": str(tmp_path / "home"),
               "MEANSTREAM_SECRET": SECRET, "GOOGLE_CLOUD_PROJECT": "project-of-the-environment",
               "TMPDIR": str(tmp_path / "temporary")}  # fmt: skip
    (tmp_path / "temporary").mkdir()
    (tmp_path / "folder").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in planted.items():
            patch.setenv(name, value)
        patch.setattr(socket, "gethostname", lambda: "host-of-this-machine")
        patch.setattr(
            tempfile, "tempdir", planted["TMPDIR"]
        )  # what Beam leaves of a job that it submits goes, too
        patch.chdir(tmp_path / "folder")
        yield planted | {
            "root": str(ROOT), "prefix": sys.prefix, "folder": str(tmp_path), "test": str(Path(__file__).parent),
            "host": "host-of-this-machine", "name of the host": os.uname().nodename + ".", "temporary": "/tmp/",  # noqa: S108
            "localhost": "localhost", "loopback": "127.0.0.1",
        }  # fmt: skip


@cache
def sent_as(name: str) -> Submitted:
    """Submit a run, once for all tests that look at the job."""
    return submit(*once(RUNS[name]))


def faults(sent: Submitted, needles: dict[str, str], folder: Path) -> dict[str, str]:
    """Say what in a submitted job would not work, or should not be, elsewhere."""
    found = {}
    for name, data in sent.files.items():
        # Options of Beam that nobody gave have defaults, of which one is localhost.
        wanted = (
            needles
            if name == "pipeline.pb"
            else {k: v for k, v in needles.items() if k != "localhost"}
        )
        if told := revealed(data, wanted):
            found[name] = ", ".join(sorted(told))
    for environment in sent.proto.components.environments.values():
        if environment.urn != "beam:env:docker:v1" or environment.dependencies:
            found["environment"] = environment.urn
    if sent.files.keys() != {"pipeline.pb", "job_object"}:
        found["staged"] = ", ".join(sent.files)
    return found | broken(payloads(sent.proto), folder)


@pytest.mark.parametrize("name", RUNS)
def test_a_job_depends_on_nothing_of_this_machine(
    name: str, needles: dict[str, str], tmp_path: Path
) -> None:
    sent = sent_as(name)
    assert faults(sent, needles, tmp_path) == {}
    assert sent.job["type"] == ("JOB_TYPE_BATCH" if "file" in name else "JOB_TYPE_STREAMING")
    assert len(list(payloads(sent.proto))) > 10
    workers = sent.job["environment"]["workerPools"][0]["sdkHarnessContainerImages"]
    assert [image["containerImage"] for image in workers] == [
        "europe-docker.pkg.dev/some-project/images/meanstream-beam:0.3.0"
    ]
    assert revealed(sent.files["pipeline.pb"], {"where workers find the secret": PLACE}), (
        "the search finds what is there"
    )


@pytest.mark.parametrize("name", RUNS)
def test_the_job_shows_no_parameter(name: str) -> None:
    sent = sent_as(name)
    shown = {item["key"] for item in sent.job["environment"]["sdkPipelineOptions"]["display_data"]}
    assert "runner" in shown
    assert not shown & {"secret", "epsilon", "source", "sink", "lower", "upper"}


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--source=samples.csv", "source must be gs://BUCKET/FILE of type .csv, .tsv"),
        ("--source=gs://some-bucket/a.txt", "source must be gs://BUCKET/FILE of type .csv, .tsv"),
        ("--source=gs://some-bucket/b", "source must be gs://BUCKET/FILE of type .csv, .tsv"),
        ("--sink=means.jsonl", "sink must be gs://BUCKET/FILE.jsonl or a topic"),
        ("--sink=gs://some-bucket/a.csv", "sink must be another place than source"),
        (
            "--source=projects/some-project/subscriptions/samples",
            "sink must be a topic where the source has no end",
        ),
        ("--source=projects/x/samples", "source must be projects/PROJECT/subscriptions/NAME"),
        ("--source=kafka://b/samples?gap=skip", "gap must be 'refuse' on Beam"),
        ("--sink=projects/x/samples", "sink must be projects/PROJECT/topics/NAME"),
        ("--dead-letters=kafka://b/l", "dead_letters must be left out where the source is a file"),
        ("--until-end", "until_end must be left out where the source is no Kafka topic"),
        (
            "--secret-file=noise.key",
            "secret must be a numbered version, projects/PROJECT/secrets/NAME/versions/NUMBER",
        ),
        ("--runner-arg=--unheard=3", "runner_arg must be an option of Beam, got 'unheard'"),
        (
            "--runner-arg=--experiments=streaming_mode_at_least_once",
            "experiments must leave every sample exactly once",
        ),
        ("--offsets=0:1-2", "offsets must be left out with DataflowRunner, got '0:1-2'"),
        ("--store=s.db", "store must be left out with DataflowRunner, got 's.db'"),
        ("--log-format=json", "log_format must be left out with DataflowRunner, got 'json'"),
        ("--no-sort", "sort must be left out with DataflowRunner, got 'False'"),
        ("--batch-size=7", "batch_size must be left out with DataflowRunner, got '7'"),
        (
            "--metrics=127.0.0.1:9464",
            "metrics must be left out with DataflowRunner, got '127.0.0.1:9464'",
        ),
    ],
)
def test_what_dataflows_workers_do_not_have_is_one_line(typed: str, message: str) -> None:
    good = {"--source": "gs://some-bucket/a.csv", "--sink": "gs://some-bucket/means.jsonl", "--secret-file": PLACE,
            "--name": "trips", "--lower": "0", "--upper": "1", "--epsilon": "1", "--window": "1d"}  # fmt: skip
    name = typed.partition("=")[0]
    rest = [f"{option}={value}" for option, value in good.items() if option != name]
    image = "--runner-arg=--sdk_container_image=image"
    ran = meanstream("run", "rounds", *rest, typed, "--runner=DataflowRunner", image)
    assert ran.message.startswith(message), ran.message


def test_a_job_needs_a_key_and_an_image() -> None:
    rest = ["--source=gs://some-bucket/a.csv", "--sink=gs://some-bucket/means.jsonl", "--name=trips",
            "--lower=0", "--upper=1", "--epsilon=1", "--window=1d", "--runner=DataflowRunner"]  # fmt: skip
    ran = meanstream("run", "rounds", *rest)
    assert ran.message == "secret_file must be given with DataflowRunner, got None"
    ran = meanstream("run", "rounds", *rest, f"--secret-file={PLACE}")
    assert ran.message.startswith("sdk_container_image must be given on Dataflow"), ran.message


class Closes(beam.DoFn):
    """Carries a value that was made where the pipeline was."""

    def __init__(self, value: object) -> None:
        self._value = value

    def process(self, element: Any) -> None:
        """Do nothing."""


def wrong_path(tmp_path: Path) -> Any:
    return beam.Map(lambda element, path=str(tmp_path / "model.bin"): (element, path))


def wrong_secret(tmp_path: Path) -> Any:
    found = os.environ["MEANSTREAM_SECRET"]
    return beam.Map(lambda element: (element, found))


def wrong_variable(tmp_path: Path) -> Any:
    return beam.Map(lambda element, project=os.environ["GOOGLE_CLOUD_PROJECT"]: (element, project))


def wrong_host(tmp_path: Path) -> Any:
    found = socket.gethostname()
    return beam.Map(lambda element: (element, found))


def wrong_broker(tmp_path: Path) -> Any:
    return beam.Map(lambda element, broker="localhost:9092": (element, broker))


def wrong_module(tmp_path: Path) -> Any:
    return beam.ParDo(Closes(1))


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a local path": (wrong_path, "folder"),
    "the secret": (wrong_secret, "MEANSTREAM_SECRET"),
    "a variable": (wrong_variable, "GOOGLE_CLOUD_PROJECT"),
    "the host": (wrong_host, "host"),
    "a local broker": (wrong_broker, "localhost"),
}


def with_step(monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
    """Add a step to the pipeline of agents."""
    good = dataflow_pipelines._add_agents

    def both(pipeline: beam.Pipeline, *rest: Any) -> None:
        good(pipeline, *rest)
        _ = pipeline | "Begin" >> beam.Impulse() | "Wrong" >> step

    monkeypatch.setattr(dataflow_pipelines, "_add_agents", both)


def test_steps_that_carry_something_of_this_machine_are_found(
    needles: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [name >> make(Path(needles["folder"])) for name, (make, _) in WRONG.items()]
    with_step(monkeypatch, reduce(operator.or_, steps))
    found = faults(submit(*once(RUNS["agents of a file"])), needles, tmp_path)
    assert {what for _, what in WRONG.values()} <= set(found["pipeline.pb"].split(", "))


def test_a_step_that_is_not_installed_is_found(
    needles: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_step(monkeypatch, wrong_module(tmp_path))
    found = faults(submit(*once(RUNS["agents of a file"])), needles, tmp_path)
    assert found.keys() == {"Wrong"}
    assert "not installed: tests" in found["Wrong"]


def test_a_main_session_and_the_list_of_packages_are_found(
    needles: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = run_on_dataflow.dataflow_beam_options

    def saves(*given: Any) -> PipelineOptions:
        options = good(*given)
        options.view_as(SetupOptions).save_main_session = True
        options.view_as(SetupOptions).pickle_library = "cloudpickle"
        options.view_as(beam.options.pipeline_options.DebugOptions).experiments = []
        return options

    monkeypatch.setattr(run_on_dataflow, "dataflow_beam_options", saves)
    found = faults(submit(*once(RUNS["agents of a file"])), needles, tmp_path)
    assert "submission_environment_dependencies.txt" in found["staged"]
    assert found["environment"] == "beam:env:docker:v1"


NUMBERS = (
    # Beam gives these steps of its own no type: a reshuffling, where a runner has none itself. What
    # is in them are numbers: a partition and its offsets, or an impulse, with Beam's times.
    *(
        f"/{label}/ReshufflePerKey/{step}"
        for label in ("Apart", "Once")
        for step in ("Map(reify_metadata_default_window)", "GroupByKey")
    ),
)


@pytest.mark.parametrize("name", RUNS)
def test_no_element_is_pickled(name: str) -> None:
    found = {re.sub(r" \d+$", "", element) for element in pickled_elements(sent_as(name).proto)}
    assert {element for element in found if not element.endswith(NUMBERS)} == set()


@pytest.mark.parametrize("kind", [Any, tuple[int, Any]])
def test_what_is_pickled_as_an_element_or_as_a_part_of_one_is_found(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_step(monkeypatch, beam.Map(repr).with_output_types(kind) | "Again" >> beam.Map(len))
    assert "Wrong/Map(repr)" in str(pickled_elements(submit(*once(RUNS["agents of a file"])).proto))


def test_a_type_that_loses_its_coder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(typecoders.registry._coders, EventLines)
    found = pickled_elements(submit(*once(RUNS["agents of a topic"])).proto)
    assert {
        f"Write {role}/Lines" for role in ("estimates", "notices", "population", "releases")
    } <= found


def test_file_names_of_beams_own_code_are_what_is_let_through() -> None:
    beam_file = f"{sysconfig.get_path('purelib')}/apache_beam/transforms/core.py"
    assert revealed(beam_file.encode(), {"prefix": sys.prefix}) == set()
    assert revealed(beam_file.replace("apache_beam", "other").encode(), {"prefix": sys.prefix}) == {
        "prefix"
    }
