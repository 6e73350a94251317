"""What a pipeline that is submitted to Dataflow carries: every byte of it, what is packed in those,
and what unpickles.

`revealed` finds text of the submitting machine anywhere in the bytes; `broken` loads every function
and coder in a new process that has the installed packages and nothing else of this one.
"""

from __future__ import annotations

import atexit
import base64
import binascii
import bz2
import json
import re
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.internal import apiclient

from tests.pipelines.command_line import meanstream

ROOT = Path(__file__).parents[4]
DATAFLOW = (
    "--project=some-project",
    "--region=europe-west1",
    "--temp_location=gs://some-bucket/temp",
    "--staging_location=gs://some-bucket/staging",
    "--template_location=gs://some-bucket/launches/job_object",
    "--job_name=private-means",
    "--no_auth",
    "--sdk_container_image=europe-docker.pkg.dev/some-project/images/meanstream-beam:0.3.0",
)
_BEAMS_FILE = re.compile(
    re.escape(sysconfig.get_path("purelib")).encode() + rb"/apache_beam/[a-z_/]+\.py"
)
_PACKED = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")
OF_BEAM = re.compile(r"beam:coder:(?!pickled_python)[a-z0-9_]+:v[0-9]+")


@dataclass
class Submitted:
    """What was to be sent: the pipeline, and each file that was to be staged."""

    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def proto(self) -> Any:
        return beam_runner_api_pb2.Pipeline.FromString(self.files["pipeline.pb"])

    @property
    def job(self) -> Any:
        return json.loads(self.files["job_object"])


def submit(key: str, *arguments: str) -> Submitted:
    """Submit a run to Dataflow by the command."""
    beam_options = [f"--runner-arg={option}" for option in DATAFLOW]
    with nothing_sent() as sent:
        ran = meanstream("run", key, *arguments, "--runner=DataflowRunner", *beam_options, "--json")
    assert (ran.code, ran.json) == (0, {"runner": "DataflowRunner", "job": None}), ran.err
    return sent


@contextmanager
def nothing_sent() -> Iterator[Submitted]:
    """Keep what would be put into buckets, and go nowhere."""
    sent = Submitted()

    def stage(_self: Any, _place: str, name: str, stream: Any, *_rest: Any, **_more: Any) -> None:
        sent.files[name] = Path(stream).read_bytes() if isinstance(stream, str) else stream.read()

    def no_question(_self: Any, _name: str) -> None:
        """Instead of asking the bucket for its policy of deletion."""

    with (
        patch.object(apiclient.DataflowApplicationClient, "stage_file_with_retry", stage),
        patch.object(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled", no_question),
    ):
        yield sent


def unpacked(data: bytes) -> Iterator[bytes]:
    """Give the bytes, and all that is packed in them as Beam packs: base64 of zlib or bz2, to any
    depth."""
    yield data
    for match in _PACKED.finditer(data):
        # A length before the text may look like a part of it, so that its beginning is searched
        # for.
        for start in {0, *(at.start() for at in re.finditer(rb"eN|Qlpo", match[0]))}:
            text = match[0][start:]
            try:
                raw = base64.b64decode(text[: len(text) // 4 * 4])
                inner = bz2.decompress(raw) if raw.startswith(b"BZh") else zlib.decompress(raw)
            except (binascii.Error, ValueError, OSError, zlib.error):
                continue
            yield from unpacked(inner)


def revealed(data: bytes, needles: Mapping[str, str]) -> set[str]:
    """Name what of this machine is in the bytes.

    Beam pickles functions of its own by value, with the name of their file: where Beam is
    installed, as in the images, which install it once for both. Nothing is read there, so these
    names are let through.
    """
    parts = [_BEAMS_FILE.sub(b"", part) for part in unpacked(data)]
    return {name for name, text in needles.items() if any(text.encode() in part for part in parts)}


def payloads(proto: Any) -> Iterator[tuple[str, str, bytes]]:
    """Give (kind, name, pickled bytes) of each function, window function and coder."""
    for transform in proto.components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            pardo = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            if not pardo.do_fn.urn.startswith("beam:transform:") and pardo.do_fn.payload:
                yield "function", transform.unique_name, pardo.do_fn.payload
            for tag, side in pardo.side_inputs.items():
                yield "function", f"{transform.unique_name}, side input {tag}", side.view_fn.payload
                if "pickled" in side.window_mapping_fn.urn:
                    yield (
                        "function",
                        f"{transform.unique_name}, windows of {tag}",
                        side.window_mapping_fn.payload,
                    )
        elif transform.spec.urn.startswith("beam:transform:combine"):
            combine = beam_runner_api_pb2.CombinePayload.FromString(transform.spec.payload)
            yield "function", transform.unique_name, combine.combine_fn.payload
    for name, strategy in proto.components.windowing_strategies.items():
        if "pickled" in strategy.window_fn.urn:
            yield "function", name, strategy.window_fn.payload
    for name, coder in proto.components.coders.items():
        if coder.spec.urn == "beam:coder:pickled_python:v1":
            yield "coder", name, coder.spec.payload
        elif not OF_BEAM.fullmatch(coder.spec.urn):
            yield "coder", name, b""


def pickled_elements(proto: Any) -> set[str]:
    """Name the steps whose output, or a part of it, has no coder of its own and is read by another
    step."""
    parts = proto.components
    kinds = {
        name
        for name in parts.coders
        if any(b"FastPrimitivesCoder$" in one for one in _leaves(parts, name))
    }
    steps = [transform for transform in parts.transforms.values() if not transform.subtransforms]
    read = {name for step in steps for name in step.inputs.values()}
    return {
        step.unique_name
        for step in steps
        for name in step.outputs.values()
        if name in read and parts.pcollections[name].coder_id in kinds
    }


def _leaves(parts: Any, name: str) -> Iterator[bytes]:
    """Give the beginning of each coder that a coder is made of."""
    coder = parts.coders[name]
    yield coder.spec.payload[:40]
    for inner in coder.component_coder_ids:
        yield from _leaves(parts, inner)


LOADER = """
import importlib.abc, json, os, sys

class Installed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("tests", "benchmarks", "docker", "__mp_main__"):
            raise ModuleNotFoundError("not installed: " + name)

sys.meta_path.insert(0, Installed())
import google.protobuf.wrappers_pb2 as wrappers
from apache_beam.coders import coders
from apache_beam.internal import pickler

def load(kind, data):
    if kind != "coder":
        pickler.loads(data)
        return
    loaded = coders.deserialize_coder(wrappers.BytesValue.FromString(data).value)
    module = type(loaded).__module__
    if module.partition(".")[0] not in ("meanstream", "apache_beam"):
        raise ValueError("coder of " + module)
    if type(loaded).__name__ in ("PickleCoder", "DillCoder", "CloudpickleCoder"):
        raise ValueError("pickles elements")

def broken(found):
    for kind, name, payload in found:
        try:
            load(kind, bytes.fromhex(payload))
        except Exception as error:
            yield name, type(error).__name__ + ": " + str(error)[:200]

for line in sys.stdin:
    folder, found = json.loads(line)
    if os.fork() == 0:
        os.chdir(folder)
        os.environ["HOME"] = folder + "/nobody"
        print(json.dumps(dict(broken(found))), flush=True)
        os._exit(0)
    if os.wait()[1]:
        print(json.dumps({"process": "ended"}), flush=True)
"""
"""Loads what each line holds in a fork: Beam is imported once, and nothing that one line loads is
there for another."""


def broken(found: Iterable[tuple[str, str, bytes]], folder: Path) -> dict[str, str]:
    """Load each in a process of another folder, home and environment; say which do not load, and
    why."""
    request = [str(folder), [[kind, name, payload.hex()] for kind, name, payload in found]]
    process = _loader()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer: dict[str, str] = json.loads(process.stdout.readline())
    return answer


@cache
def _loader() -> subprocess.Popen[str]:
    """Start the process that loads, once per process of tests; it ends when its input does."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", LOADER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin", "LANG": "C.UTF-8"},
    )
    atexit.register(process.communicate)
    return process
