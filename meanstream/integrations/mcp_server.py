"""`meanstream mcp`: the public side of a store as tools of the Model Context Protocol."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

import meanstream
from meanstream.integrations.public_answers import PublicAnswers
from meanstream.pipelines.options.base import options_json
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.streaming.store.state_store import StoreError

INSTRUCTIONS = (
    "Read-only tools on a store of private means: promise, plans, budgets, public releases, fitted population, chain. "
    "No tool reads a sample, a private estimate or a secret, and none spends budget."
)


def serve_public_answers(store: Path) -> None:
    """Serve the public side of a store until standard input ends.

    **Privacy.** The tools are those of `PublicAnswers`. There are no resources and no prompts, and an error that is
    not ours is answered by its kind alone.

    Raises
    ------
    StoreError
        If it is no store of agents or of users in rounds.
    """
    server = _server(PublicAnswers(store))

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


def _server(answers: PublicAnswers) -> Server[Any]:
    tools = [
        types.Tool(
            name=name,
            description=said,
            input_schema=kind.model_json_schema(),
            annotations=types.ToolAnnotations(
                read_only_hint=True, idempotent_hint=True, open_world_hint=False
            ),
        )
        for name, (kind, said) in answers.tools.items()
    ]

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: Any, call: types.CallToolRequestParams) -> types.CallToolResult:
        return await run_sync(partial(_called, answers, call.name, call.arguments or {}))

    return Server(
        "meanstream",
        version=meanstream.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _called(answers: PublicAnswers, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Answer a call; a refusal is one sentence, and names no value but the caller's."""
    if name not in answers.tools:
        return _refused(f"tool must be one of {', '.join(answers.tools)}, got {name[:100]!r}")

    try:
        text = options_json(answers.answer(name, arguments))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return _refused(f"{'.'.join(str(part)[:100] for part in first['loc'])}: {first['msg']}")
    except (BadOption, StoreError, ValueError) as error:
        return _refused(str(error)[:500])
    except Exception as error:  # its text may be anything
        return _refused(f"the store could not be read ({type(error).__name__})")

    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=json.loads(text)
    )


def _refused(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=why)], is_error=True)
