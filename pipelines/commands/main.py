"""The command `meanstream`: its groups, and how it ends when an option is refused."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, wraps
from typing import Annotated, Any

import typer

import meanstream
from meanstream.pipelines.commands.command_outputs import Output
from meanstream.pipelines.commands.command_parts import PARTS
from meanstream.pipelines.commands.run.run_logs import log_lines_of_defect
from meanstream.pipelines.commands.run.signals import pause_collection, resume_collection
from meanstream.pipelines.options.declaration import cli_option
from meanstream.pipelines.options.help_text import with_environment_and_headings
from meanstream.pipelines.options.near_names import near_command
from meanstream.pipelines.options.option_errors import BadOption, RunFailed
from meanstream.pipelines.options.parsing import TypedValues, refusing_typed_in_one_line
from meanstream.pipelines.options.typer_commands import prepare_commands

# Typer comes with a click of its own, or uses the package, by its version.
_CLICK_ERROR = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

CLOSED_BY_READER = 128 + 13
"""Exit code if the reader of standard output has enough, as `| head`: that of a program ended by
SIGPIPE."""
LONGEST_LINE = 4000
"""Characters of a refusal. A value may be a file that was named in place of a number."""
_UNREACHABLE = (errno.EACCES, errno.ENAMETOOLONG)
"""What is wrong with a path whose file cannot even be looked for: it is there or not, but not for
us."""


def _show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        typer.echo(f"meanstream {meanstream.__version__}")
        raise typer.Exit


def _meanstream(
    version: Annotated[
        bool,
        cli_option(
            "Show the version and exit.",
            None,
            "--version",
            "-V",
            callback=_show_version,
            is_eager=True,
            environment=False,
            shows=False,
        ),
    ] = False,
) -> None:
    """Private mean estimation on event streams, with an error bar on every answer."""


def _made_app(only: str | None = None, named: str | None = None) -> typer.Typer:
    """Make the command with all of its parts, or with one: an engine that starts again does not wait for the others.

    Of a group, the one command that is named has its options, or all have theirs.
    """
    made = typer.Typer(
        name="meanstream",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    made.callback()(_meanstream)

    for name, part in PARTS.items():
        if only not in (None, name):
            continue

        if part.is_group:
            group = part.loaded()
            prepare_commands(group, named)
            made.add_typer(group, name=name)
        else:
            made.command(name)(part.loaded())

    return made


def _made_list() -> typer.Typer:
    """Make the command as `--help` shows it.

    Its parts have a name and a line, and none is imported.
    """
    made = _made_app(only="")
    for name, part in PARTS.items():
        made.command(name, help=part.line)(_meanstream)

    return made


def __getattr__(name: str) -> Any:
    """Make `app`, all of it, when it is requested."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault("app", _made_app())


def main() -> None:
    """Run the command line; a refused option is one line on standard error and exit code 2, a failed run code 1.

    **Privacy.** Standard error may be anyone's: a defect shows where it is, and of an error that is not ours no text.
    """
    output: Any = Output(sys.stdout)
    before, sys.stdout = sys.stdout, output
    try:
        code, said, expected = _run()
    finally:
        sys.stdout = before

    reason = output.end()
    if output.closed_by_reader and not (expected and code):
        code = CLOSED_BY_READER
        said = ""
    elif reason is not None and not (expected and code):
        code = 1
        said = f"meanstream: standard output must be writable, got {reason!r}\n"

    with suppress(OSError):
        sys.stderr.write(said)
        sys.stderr.flush()

    sys.exit(code)


def _run() -> tuple[int, str, bool]:
    """Run what was typed: tell the exit code, what standard error is to say, and whether it is one of ours."""
    typed = TypedValues()
    sys.argv[1:] = _with_usual_words(sys.argv[1:])
    part = _named_part(sys.argv)
    named = None if part is None else "".join(sys.argv[2:3])

    if part == "run":
        # The matrices of an engine are small: threads of OpenBLAS would wait for one another,
        # spinning, on processors that the clients of brokers need. NumPy reads this once, when it
        # is imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        pause_collection()

    try:
        made = _command(part, named, only_listed=_only_lists(sys.argv))
        return made(standalone_mode=False, obj=typed) or 0, "", True
    except BadOption as error:
        return 2, _own_line(typed.shown_in(str(error))), True
    except RunFailed as error:
        return 1, _own_line(str(error)), True
    except SystemExit as ended:  # where the logs have said why, or no one reads standard output
        return int(ended.code or 0), "", False
    except Exception as error:
        return _unexpected(error, typed)
    finally:
        if not gc.isenabled():
            resume_collection()


def _own_line(text: str) -> str:
    """Write the line of a refusal; of a value that fills screens, its beginning and its end."""
    if len(text) > LONGEST_LINE:
        text = f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 4 :]}"

    return f"meanstream: {text}\n"


def _with_usual_words(typed: Sequence[str]) -> list[str]:
    """Write `help [COMMAND...]`, `version` and their letters as the options that they mean.

    Examples
    --------
    >>> _with_usual_words(["help", "run", "agents"]), _with_usual_words(["version"])
    (['run', 'agents', '--help'], ['--version'])
    """
    match list(typed):
        case ["help", *command]:
            return [*command, "--help"]
        case ["version"] | ["-V"]:
            return ["--version"]
        case ["-h"]:
            return ["--help"]
        case [part, "-h"]:
            return [part, "--help"]

    return list(typed)


def _named_part(typed: Sequence[str]) -> str | None:
    """Give the part that is typed first; None where all are wanted, to be listed."""
    named = typed[1] if len(typed) > 1 else ""

    if named in PARTS:
        return named
    return None


def _only_lists(typed: Sequence[str]) -> bool:
    """Tell whether nothing but the list of parts, or the version, is requested; a shell that completes asks for all."""
    return typed[1:] in ([], ["--help"], ["--version"]) and "_MEANSTREAM_COMPLETE" not in os.environ


@cache
def _command(part: str | None, named: str | None, *, only_listed: bool) -> Any:
    made = _made_list() if only_listed else _made_app(part, named)
    command = with_environment_and_headings(typer.main.get_command(made))
    _end_logs_of_clients(command)
    return refusing_typed_in_one_line(command)


def _end_logs_of_clients(command: Any) -> None:
    """Let the log lines of clients end with the command that made them.

    `--help` imports no client.
    """
    parts = getattr(command, "commands", {})
    for part in parts.values():
        _end_logs_of_clients(part)

    if not parts:
        command.callback = _with_logs_of_clients(command.callback)


def _with_logs_of_clients(work: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(work)
    def worked(*given: Any, **named: Any) -> Any:
        from meanstream.streaming.client_logs import logs_of_clients

        with logs_of_clients():
            return work(*given, **named)

    return worked


def _unexpected(error: Exception, typed: TypedValues) -> tuple[int, str, bool]:
    """Tell the same of what is not one of our own errors."""
    if (
        isinstance(error, OSError)
        and error.errno in _UNREACHABLE
        and isinstance(error.filename, str)
    ):
        option = typed.option_of(error.filename)
        if option is not None:
            rule = f"{option} must be reachable, got {error.filename!r} ({error.strerror})"
            return 2, f"meanstream: {rule}\n", True

    if isinstance(error, _CLICK_ERROR):
        message = error.format_message()  # type: ignore[attr-defined]
        if _named_part(sys.argv) is None:
            message = near_command(message, _command(None, None, only_listed=False))
        return 2, f"meanstream: {message}\n", True

    if isinstance(error, MemoryError):
        return (
            1,
            "meanstream: memory must suffice, got too little: use smaller options, such as --batch-size\n",
            True,
        )

    return 1, log_lines_of_defect(error), False


if __name__ == "__main__":
    main()
