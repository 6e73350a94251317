"""The command `meanstream`: its groups, and how it ends when an option is refused."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import typer

import meanstream
from meanstream.pipelines.commands.audit import command as audit
from meanstream.pipelines.commands.demo import agents as demo
from meanstream.pipelines.commands.explain import command as explain
from meanstream.pipelines.commands.explain import plan
from meanstream.pipelines.commands.init import init
from meanstream.pipelines.commands.outputs import Output
from meanstream.pipelines.commands.report.command import report
from meanstream.pipelines.commands.reproduce import command as reproduce
from meanstream.pipelines.commands.run import command as run
from meanstream.pipelines.commands.run.logs import log_lines_of_defect
from meanstream.pipelines.commands.schema import schema
from meanstream.pipelines.commands.simulate import command as simulate
from meanstream.pipelines.commands.simulate import theory
from meanstream.pipelines.commands.state import dlq, ledger, secret, store
from meanstream.pipelines.commands.state.budget import budget
from meanstream.pipelines.commands.state.get import get
from meanstream.pipelines.options.errors import BadOption, RunFailed
from meanstream.pipelines.options.shown import with_environment_and_headings
from meanstream.pipelines.options.typed import TypedValues, refusing_typed_in_one_line

# Typer comes with a click of its own, or uses the package, by its version.
_CLICK_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_UNREACHABLE = (errno.EACCES, errno.ENAMETOOLONG)
"""What is wrong with a path whose file cannot even be looked for: it is there or not, but not for us."""

app = typer.Typer(
    name="meanstream",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        typer.echo(f"meanstream {meanstream.__version__}")
        raise typer.Exit


@app.callback()
def _meanstream(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Private mean estimation on event streams, with an error bar on every answer."""


app.add_typer(run.app, name="run")
app.add_typer(simulate.app, name="simulate")
app.add_typer(theory.app, name="theory")
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(explain.app, name="explain")
app.add_typer(plan.app, name="plan")
app.add_typer(audit.app, name="audit")
app.add_typer(dlq.app, name="dlq")
app.add_typer(ledger.app, name="ledger")
app.add_typer(secret.app, name="secret")
app.add_typer(store.app, name="store")
app.add_typer(demo.app, name="demo")
app.command("budget")(budget)
app.command("get")(get)
app.command("init")(init)
app.command("report")(report)
app.command("schema")(schema)


def main() -> None:
    """Run the command line; a refused option is one line on standard error and exit code 2, a failed run code 1.

    **Privacy.** Standard error may be anybody's: a defect shows where it is, and of an error that is not ours no text.
    """
    output: Any = Output(sys.stdout)
    before, sys.stdout = sys.stdout, output
    try:
        code, said, expected = _run()
    finally:
        sys.stdout = before
    reason = output.end()
    if reason is not None and not (expected and code):
        code, said = 1, f"meanstream: standard output must take what is written, got {reason!r}\n"
    with suppress(OSError):
        sys.stderr.write(said)
        sys.stderr.flush()
    sys.exit(code)


def _run() -> tuple[int, str, bool]:
    """Run what was typed: tell the exit code, what standard error is to say, and whether it is one of ours."""
    typed = TypedValues()
    try:
        return _command()(standalone_mode=False, obj=typed) or 0, "", True
    except BadOption as error:
        return 2, f"meanstream: {typed.shown_in(str(error))}\n", True
    except RunFailed as error:
        return 1, f"meanstream: {error}\n", True
    except SystemExit as ended:  # where the logs have said why, or nobody reads standard output
        return int(ended.code or 0), "", False
    except Exception as error:
        return _unexpected(error, typed)


@cache
def _command() -> Any:
    return refusing_typed_in_one_line(with_environment_and_headings(typer.main.get_command(app)))


def _unexpected(error: Exception, typed: TypedValues) -> tuple[int, str, bool]:
    """Tell the same of what is not one of our own errors."""
    if isinstance(error, OSError) and error.errno in _UNREACHABLE and isinstance(error.filename, str):
        option = typed.option_of(error.filename)
        if option is not None:
            rule = f"{option} must be a place that can be reached, got {error.filename!r} ({error.strerror})"
            return 2, f"meanstream: {rule}\n", True
    if isinstance(error, _CLICK_ERROR):
        return 2, f"meanstream: {error.format_message()}\n", True  # type: ignore[attr-defined]
    if isinstance(error, MemoryError):
        return 1, "meanstream: memory must hold what was asked for, got too little: ask for less\n", True
    return 1, log_lines_of_defect(error), False


if __name__ == "__main__":
    main()
