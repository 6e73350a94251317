"""`meanstream secret`: keys of the noise, and to sign heads of a ledger with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import refusing_options

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def secret() -> None:
    """Make keys for the noise and for signatures of a ledger."""


@app.command("new")
def secret_new(
    file: Annotated[Path, typer.Argument(help="New file.")],
    *,
    signing: Annotated[
        bool,
        cli_option(
            "Key for signatures of a ledger's head (Ed25519), with the public key in FILE.pub.",
            INPUT,
            "--signing",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a new key of 256 random bits to a new file, readable by its owner only.

    Keep it as long as the store, and a copy in another place: without it a stream cannot continue. With the key and
    the releases one can compute the noise. A key for signing is separate, and reveals nothing about the noise.

    \b
    Examples:
      meanstream secret new noise.key
      meanstream run agents --secret-file noise.key ...
      meanstream secret new --signing signing.key
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.own_paths import require_no_store_file
    from meanstream.streaming.store.ledger_signature import make_signing_key
    from meanstream.streaming.store.secret_source import make_secret

    public = None
    with refusing_options():
        require_no_store_file("file", file)
        if signing:
            public = make_signing_key(file)
        else:
            make_secret(file)

    if as_json:
        print_options_json(
            {"secret_file": str(file)}
            if public is None
            else {"signing_key": str(file), "signer": str(public)}
        )

    if public is not None:
        sys.stderr.write(
            f"{str(file)!r} signs heads: keep it secret; {str(public)!r} is for those who check signatures\n"
        )
        return

    sys.stderr.write(f"{str(file)!r} holds a new key: keep it secret, and as long as the store\n")
