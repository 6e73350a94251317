"""The pages of the site whose code speaks to a broker, on a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.code_blocks import PAGES, ROOT, PageRun, blocks_of, needs_broker
from tests.servers.support.broker import Broker

ASKING = [page for page in PAGES if needs_broker(page)]


def test_there_are_such_pages() -> None:
    assert ROOT / "docs" / "tutorials" / "csv-to-kafka.md" in ASKING


@pytest.mark.parametrize("page", ASKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs(
    page: Path, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", dict(os.environ))
    (tmp_path / "page").mkdir()
    runner = PageRun(tmp_path / "page", broker=own_broker.address)
    for block in blocks_of(page):
        if block.what != "not run":
            runner.run(block)
