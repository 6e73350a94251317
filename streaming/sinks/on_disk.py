"""What the sinks on disk share: a place that is a file, or a folder, that may be written."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

from meanstream.operators.validation import require
from meanstream.streaming.sinks.sink_protocol import SinkOpening, Trust


def path_on_disk(location: str) -> str:
    """Say which file or folder is meant, whatever the folder that it is named from."""
    return str(Path(location).resolve())


@contextmanager
def checking_disk(option: str, location: str) -> Iterator[None]:
    """Refuse a place into which no one may look."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{option} must be readable, got {location!r} ({error.strerror})"
        ) from None


class SinkOnDisk(ABC):
    """Base of a sink in a file or a folder.

    Attributes
    ----------
    kind : str
        What stands there, for messages: "a .jsonl file".
    folder : bool
        Whether it is a folder.
    """

    kind: ClassVar[str]
    folder: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, path: Path, *, trust: Trust, option: str = "sink") -> None: ...

    @classmethod
    def check(cls, location: str, option: str) -> None:
        """Refuse a place that could not be opened, without making it."""
        path = Path(location)
        require(path.parent.is_dir(), option, "be in an existing folder", location)

        if path.exists():
            require(
                path.is_dir() if cls.folder else path.is_file(), option, f"be {cls.kind}", location
            )

        require(
            os.access(path if path.exists() else path.parent, os.W_OK),
            option,
            "be where you may write",
            location,
        )

    @classmethod
    def canonical_location(cls, location: str) -> str:
        """Give its whole path."""
        return path_on_disk(location)

    @classmethod
    def open(cls, location: str, opening: SinkOpening) -> Self:
        """Make it, or go on with what is there."""
        cls.check(location, opening.option)
        return cls(Path(location), trust=opening.trust, option=opening.option)
