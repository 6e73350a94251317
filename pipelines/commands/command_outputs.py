"""What a command writes: files whole or not at all, and standard output that someone may have stopped taking."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from meanstream.pipelines.options.option_errors import BadOption, RunFailed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_MARK = b"Software\0Meanstream"
"""What a picture of ours says near its beginning."""
HEAD_BYTES = 4096


@contextmanager
def writing_output(option: str, path: Path) -> Iterator[None]:
    """Turn whatever the operating system says against a place into one line and exit code 1."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"{option} must be writable, got {str(path)!r} ({_reason_of(error)})"
        ) from None


def _reason_of(error: OSError) -> str:
    """Say why, in the operating system's words: the error's own could hold a value."""
    if error.errno is None:
        return type(error).__name__
    return os.strerror(error.errno)


def require_new_output(option: str, path: Path, mark: bytes, what: str) -> None:
    """Refuse a file that is there, unless its beginning says that it is ours; a pipe or a terminal holds none."""
    content = b""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            with path.open("rb") as file:
                content = file.read(HEAD_BYTES)
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return
    except FileNotFoundError:
        return
    except (OSError, ValueError):  # ours is readable
        pass

    if mark not in content:
        raise BadOption(f"{option} must be a new file or {what}, got {str(path)!r}")


def take_output_folder(option: str, folder: Path, mark: str) -> None:
    """Make a folder whose files are written over: a new one, an empty one, or one that was made so before."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / mark).is_file():
            return
        if any(folder.iterdir()):
            raise BadOption(
                f"{option} must be a new folder, an empty one or one of a demo, got {str(folder)!r}"
            )

        (folder / mark).write_text(
            "The files in this folder are written over by the next demo.\n", encoding="utf-8"
        )
    except OSError as error:
        shown = f"{str(folder)!r} ({_reason_of(error)})"
        raise BadOption(f"{option} must be a folder that can be written, got {shown}") from None


def save_output(option: str, path: Path, data: bytes) -> None:
    """Write a file whole or not at all: what was there stays until then; a device or a pipe is written as it is."""
    import secrets

    with writing_output(option, path):
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return

        target = path.resolve()
        unfinished = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}")
        try:
            with unfinished.open("xb") as file:
                file.write(data)

            unfinished.replace(target)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()

            raise


def save_output_figure(option: str, path: Path, figure: Figure, *, dpi: int) -> None:
    """Write a picture as a PNG file, whole or not at all; over nothing but a picture of ours."""
    require_new_output(option, path, PICTURE_MARK, "a picture of this command")
    picture = io.BytesIO()
    name, _, value = PICTURE_MARK.decode().partition("\0")
    figure.savefig(picture, format="png", dpi=dpi, metadata={name: value})
    save_output(option, path, picture.getvalue())


class Output:
    """Standard output, as whatever it is, that remembers why it took no more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._reason: str | None = None
        self.closed_by_reader = False

    def __getattr__(self, name: str) -> Any:
        """Be the stream in all else."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        with self._remembering():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand everything over."""
        with self._remembering():
            self._stream.flush()

    def end(self) -> str | None:
        """Hand everything over; say why it took no more, after which it takes everything.

        What it still holds would otherwise fail again when the process ends, with a text that no
        one asked for.
        """
        with suppress(OSError, ValueError):  # closed
            self.flush()

        if self._reason is not None:
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

        return self._reason

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._reason = _reason_of(error)
            self.closed_by_reader = error.errno == errno.EPIPE
            raise
