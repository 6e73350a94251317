"""A Secret Manager of the tests: the service's own messages over a real gRPC connection on this
machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import grpc
from google.cloud import secretmanager
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
    SecretManagerServiceGrpcTransport,
)

SERVICE = "google.cloud.secretmanager.v1.SecretManagerService"


@contextmanager
def secret_manager(versions: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Serve versions of secrets to whoever makes a client; give what was asked for, so far."""
    asked: list[str] = []

    def access(request: Any, context: grpc.ServicerContext) -> Any:
        asked.append(request.name)
        if request.name not in versions:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Secret [{request.name}] not found or has no versions."
            )
        return secretmanager.AccessSecretVersionResponse(
            name=request.name, payload={"data": versions[request.name]}
        )

    handler = grpc.unary_unary_rpc_method_handler(
        access,
        request_deserializer=secretmanager.AccessSecretVersionRequest.deserialize,
        response_serializer=secretmanager.AccessSecretVersionResponse.serialize,
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(SERVICE, {"AccessSecretVersion": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    make = secretmanager.SecretManagerServiceClient

    def client() -> secretmanager.SecretManagerServiceClient:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        return make(transport=SecretManagerServiceGrpcTransport(channel=channel))

    try:
        with patch.object(secretmanager, "SecretManagerServiceClient", client):
            yield asked
    finally:
        server.stop(None).wait()
