"""A file of librdkafka properties: what may stand in it, and secrets that never do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meanstream.operators.validation import require

_SECRET = re.compile(
    r"password|passphrase|secret|key\.pem$|private\.key|^sasl\.oauthbearer\.config$|token$|jaas|basic\.auth\.user\.info$"
)
_POINTER = re.compile(r"(env|file):(.+)", re.DOTALL)

_OFFSETS = "the store decides the offsets"
_OUTPUTS = "records must be written exactly once"
_FIXED = {
    "bootstrap.servers": "the address names the brokers",
    "metadata.broker.list": "the address names the brokers",
    "group.id": "the address names the group (group=)",
    "group.instance.id": "partitions are not handed from one store to another",
    "group.protocol": "partitions are not handed from one store to another",
    "group.remote.assignor": "partitions are not handed from one store to another",
    "partition.assignment.strategy": "partitions are not handed from one store to another",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "auto.offset.reset": "the address says where to begin (start=)",
    "offset.store.method": _OFFSETS,
    "enable.partition.eof": "the end of a partition must be seen",
    "isolation.level": "records of aborted transactions must not be read",
    "allow.auto.create.topics": "a misspelled topic must not come into being (create=)",
    "transactional.id": "the store decides who may write",
    "enable.idempotence": _OUTPUTS,
    "enable.gapless.guarantee": _OUTPUTS,
    "acks": _OUTPUTS,
    "request.required.acks": _OUTPUTS,
    "retries": _OUTPUTS,
    "message.send.max.retries": _OUTPUTS,
    "max.in.flight": _OUTPUTS,
    "max.in.flight.requests.per.connection": _OUTPUTS,
    "message.timeout.ms": _OUTPUTS,
    "delivery.timeout.ms": _OUTPUTS,
    "partitioner": "an agent's records must all be in one partition",
    "debug": "payloads and credentials must not be logged",
    "plugin.library.paths": "code that would see private data is not loaded",
    "interceptors": "code that would see private data is not loaded",
    "statistics.interval.ms": "it is used to see whether brokers are reached",
    "log.queue": "log lines go to the logger 'meanstream.kafka'",
}
"""Properties that the guarantees rest on, and why they cannot be set."""

_CALLBACK = re.compile(r"(_cb|on_delivery|on_commit|logger|opaque)$")

Settings = tuple[tuple[str, str], ...]


def read_configuration(path: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read librdkafka properties from a YAML file.

    **Privacy.** A secret property must be `env:NAME` or `file:PATH` (relative to this file); plain
    text is refused, and no message shows a value.
    """
    environment = os.environ if environment is None else environment
    settings: dict[str, str] = {}
    for name, value in _load(path).items():
        where = f"{name} in {str(path)!r}"
        if name in _FIXED or _CALLBACK.search(name):
            raise ValueError(
                f"{where} must not be set: {_FIXED.get(name, 'it is not a property of a file')}"
            )
        if not isinstance(value, str | int | float):
            raise ValueError(
                f"{where} must be text, a number, true or false, got {type(value).__name__}"
            )

        text = str(value).lower() if isinstance(value, bool) else str(value)
        pointer = _POINTER.fullmatch(text)
        if pointer is not None:
            text = _follow(where, pointer[1], pointer[2], path.parent, environment)
        elif _SECRET.search(name):
            raise ValueError(f"{where} must be env:NAME or file:PATH, got the secret itself")

        settings[name] = text

    return tuple(sorted(settings.items()))


def secrets_of_configuration(settings: Settings) -> list[str]:
    """List the values that no message may show."""
    return [value for name, value in settings if _SECRET.search(name) and value]


def _load(path: Path) -> dict[str, Any]:
    import yaml  # a fortieth of a start, where no one configures a topic

    from meanstream.streaming.strict_yaml import DuplicateKeyError, read_strict_yaml_file

    try:
        properties = read_strict_yaml_file(path)
    except OSError as error:
        raise ValueError(
            f"config must be a readable file, got {str(path)!r} ({error.strerror})"
        ) from None
    except DuplicateKeyError as error:
        raise ValueError(
            f"config must have each name once, got {str(error)!r} twice in {str(path)!r}"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)  # the text of the error quotes the file
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ValueError(
            f"config must be a YAML file, got another in {str(path)!r}{line}"
        ) from None

    properties = {} if properties is None else properties
    ok = isinstance(properties, dict) and all(isinstance(name, str) for name in properties)
    require(ok, "config", "be a file of names and values", str(path))
    return dict(properties)


def _follow(where: str, kind: str, name: str, folder: Path, environment: Mapping[str, str]) -> str:
    if kind == "env":
        if not environment.get(name):
            raise ValueError(f"{where} must be in the environment, got no variable {name!r}")
        return environment[name]

    path = folder / name
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(
            f"{where} must be in a readable file, got {str(path)!r} ({error.strerror})"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{where} must be in a file of text, got another in {str(path)!r}"
        ) from None

    if not text:
        raise ValueError(f"{where} must be in a file that is not empty, got {str(path)!r}")
    return text
