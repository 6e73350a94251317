"""Expansion service for pipelines in Java and Go.

`python -m meanstream.beam.expansion --port 8097`.

It expands the transforms of `meanstream.beam.rows` and, unless `--environment_type` names other
workers, runs their steps itself. Further options are those of Beam.

**Privacy.** The service runs what its clients send, as every expansion service does. It listens on 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_expansion_api_pb2_grpc,
    beam_fn_api_pb2_grpc,
)
from apache_beam.runners.portability.artifact_service import (
    ArtifactRetrievalService,
    BeamFilesystemHandler,
)
from apache_beam.runners.portability.expansion_service import ExpansionServiceServicer
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms.fully_qualified_named_transform import FullyQualifiedNamedTransform
from apache_beam.utils.thread_pool_executor import shared_unbounded_instance

import meanstream.beam.rows

HOST = "127.0.0.1"
ALLOWED = f"{meanstream.beam.rows.__name__}.*"
"""Transforms that are expanded by name."""


def make_server(port: int, beam_options: Sequence[str] = ()) -> tuple[grpc.Server, str]:
    """Make an expansion service that is not started yet.

    Parameters
    ----------
    port : int
        0 for any that is free.
    beam_options : sequence of str
        As on a command line. Without `--environment_type` this process runs the steps, too.

    Returns
    -------
    server, address
        `HOST:PORT`, for clients.
    """
    server = grpc.server(shared_unbounded_instance())
    address = f"{HOST}:{server.add_insecure_port(f'{HOST}:{port}')}"
    options = PipelineOptions(list(beam_options), sdk_location="container")
    portable = options.view_as(PortableOptions)

    if portable.environment_type is None:
        portable.environment_type, portable.environment_config = "EXTERNAL", address
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(
            BeamFnExternalWorkerPoolServicer(), server
        )

    beam_expansion_api_pb2_grpc.add_ExpansionServiceServicer_to_server(
        ExpansionServiceServicer(options), server
    )
    files = ArtifactRetrievalService(BeamFilesystemHandler(None).file_reader)
    beam_artifact_api_pb2_grpc.add_ArtifactRetrievalServiceServicer_to_server(files, server)

    return server, address


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(
        "python -m meanstream.beam.expansion", description="Expansion service of Beam."
    )
    parser.add_argument(
        "--port", type=int, default=8097, help="port on 127.0.0.1, 0 for a free one [default: 8097]"
    )
    own, beam_options = parser.parse_known_args(arguments)
    logging.basicConfig(level=logging.WARNING)

    with FullyQualifiedNamedTransform.with_filter(ALLOWED):
        server, address = make_server(own.port, beam_options)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop(1))

        server.start()
        sys.stdout.write(f"Expansion service at {address}\n")
        sys.stdout.flush()
        server.wait_for_termination()


if __name__ == "__main__":
    main()
