"""Every code block of the README and the site runs, or says why not; pages that need a broker:
tests/servers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.code_blocks import (
    EMPTY_FOLDER,
    PAGES,
    ROOT,
    Block,
    PageRun,
    blocks_of,
    commands_in,
    needs_broker,
    refused,
)
from tests.warm_command import commands_for_a_shell

README = ROOT / "README.md"
NAMES = {str(page.relative_to(ROOT)): page for page in PAGES}
EVERY = [block for page in PAGES for block in blocks_of(page)]
RUN = [
    pytest.param(page, id=name, marks=[pytest.mark.always] if page == README else [])
    for name, page in NAMES.items()
    if any(block.runs for block in blocks_of(page)) and not needs_broker(page)
]


def test_every_page_is_read() -> None:
    assert {"README.md", "docs/operations/topics.md", "docs/index.md"} < set(NAMES)
    assert len(EVERY) > 50


def test_every_block_runs_or_says_why_not() -> None:
    assert {block.name: block.problem for block in EVERY if block.problem} == {}


def test_every_command_of_a_block_that_is_not_run_is_taken() -> None:
    left = [
        (block.name, words) for block in EVERY if not block.runs for words in commands_in(block)
    ]
    assert len(left) > 10
    assert {f"{name} {words}": why for name, words in left if (why := refused(words))} == {}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return commands_for_a_shell(tmp_path_factory.mktemp("bin"))


@pytest.mark.parametrize("page", RUN)
def test_a_page_runs(
    page: Path, warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", dict(os.environ))  # examples set a secret
    (tmp_path / "page").mkdir()
    # The README's commands are run as a reader runs them, each in an interpreter of its own.
    runner = (
        PageRun(tmp_path / "page") if page == README else PageRun(tmp_path / "page", commands=warm)
    )
    for block in blocks_of(page):
        if block.what != "not run":
            runner.run(block)


def test_a_forked_command_has_its_own_end_folder_and_words(warm: Path, tmp_path: Path) -> None:
    page, runner = ROOT / "docs" / "page.md", PageRun(tmp_path, commands=warm)
    with pytest.raises(AssertionError, match=r"ended with 2[\s\S]*epsilon"):
        runner.run(
            Block(
                page,
                1,
                "",
                "meanstream explain agents --lower 0 --upper 1 --epsilon -1 --delta 1e-6\n",
            )
        )
    runner.run(Block(page, 1, "", "meanstream secret new key && test -s key && which meanstream\n"))
    assert runner.printed.splitlines()[-1] == str(warm / "meanstream")


def test_a_section_may_begin_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", dict(os.environ))
    first = (
        "```python\nimport os\nknown = 1\nos.environ['A'] = 'b'\n```\n\n```sh\ntouch file\n```\n"
    )
    then = "```python\nprint('known' in globals())\n```\n\n```sh\ntest ! -e file; test -z \"$A\"\n```\n"
    (tmp_path / "page").mkdir()
    runner = PageRun(tmp_path / "page")
    blocks = blocks_of(ROOT / "docs" / "page.md", f"{first}\n## More\n\n{EMPTY_FOLDER}\n\n{then}")
    assert [block.part for block in blocks] == [0, 0, 1, 1]
    for block in blocks[:3]:
        runner.run(block)
    assert runner.printed == "False\n"
    runner.run(blocks[3])


def test_what_is_wrong_would_be_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "page.md"
    text = "```python\nprint(1)\n```\n\n<!-- output -->\n```text\n2\n```\n"
    first, second = blocks_of(page, text)
    runner = PageRun(tmp_path)
    runner.run(first)
    with pytest.raises(AssertionError, match="it printed"):
        runner.run(second)
    with pytest.raises(AssertionError, match="ended with 3"):
        runner.run(Block(page, 1, "", "exit 3\n"))
    with pytest.raises(AssertionError, match="it printed"):
        runner.run(Block(page, 1, "console", "$ echo a\nb\n"))
    runner.run(Block(page, 1, "", "export A=b\n"))
    runner.run(Block(page, 1, "console", "$ echo $A\nb\n$ echo c \\\n  d\nc d\n"))
    (vary,) = blocks_of(
        page,
        "<!-- numbers vary -->\n```console\n$ echo 'a -1.5e-3 [2, 3,000]'\na 7 [-4.2, 1]\n```\n",
    )
    runner.run(vary)
    with pytest.raises(AssertionError, match="it printed"):
        runner.run(replace(vary, text=vary.text.replace("a 7 [", "a 7 (")))
    with pytest.raises(AssertionError, match="it printed"):
        runner.run(replace(vary, vary=False))
    assert [
        b.what
        for b in blocks_of(page, "<!-- output, numbers vary -->\n```text\n1\n```\n")
        if b.vary
    ] == ["output"]
    assert blocks_of(page, "<!-- not run: why -->\n```\nx\n```\n")[0].problem
    assert blocks_of(page, "```yaml\nx\n```\n")[0].problem
    assert (
        blocks_of(page, "<!-- file: a.yaml -->\n\n   ```yaml\n   x: 1\n   ```\n")[0].text
        == "x: 1\n"
    )
    assert blocks_of(page, "<!-- file: a.yaml -->\nwords\n```yaml\nx\n```\n")[0].problem


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "agents", "--source", "x.csv", "--no-sort"], None),
        (["run", "agents", "--sauce", "x.csv"], "sauce"),
        (["run", "agents", "--source"], "requires an argument"),
        (["run", "nobody"], None),  # a group's parser takes words; see below
    ],
)
def test_a_parser_refuses_what_it_does_not_know(words: list[str], problem: str | None) -> None:
    found = refused(words)
    assert (found is None) == (problem is None)
    assert problem is None or problem in str(found)
