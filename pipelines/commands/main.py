"""The command `meanstream`: its groups, and how it ends when an option is refused."""

from __future__ import annotations

import sys

import typer

from pipelines.commands import demo, dlq, explain, ledger, reproduce, run, simulate, theory
from pipelines.commands.budget import budget
from pipelines.commands.hosting import RunFailed
from pipelines.commands.options import BadOption
from pipelines.commands.plan import plan
from pipelines.commands.report import report
from pipelines.commands.schema import schema

app = typer.Typer(
    name="meanstream",
    help="Private mean estimation on event streams, with an error bar on every answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(run.app, name="run")
app.add_typer(simulate.app, name="simulate")
app.add_typer(theory.app, name="theory")
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(explain.app, name="explain")
app.add_typer(dlq.app, name="dlq")
app.add_typer(ledger.app, name="ledger")
app.add_typer(demo.app, name="demo")
app.command("plan")(plan)
app.command("budget")(budget)
app.command("report")(report)
app.command("schema")(schema)


def main() -> None:
    """Run the command line; a refused option is one line on standard error and exit code 2, a failed run code 1."""
    code = 2
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except BadOption as error:
        message = str(error)
    except RunFailed as error:
        code, message = 1, str(error)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
    sys.stderr.write(f"meanstream: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
