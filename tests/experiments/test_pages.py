"""The papers' pages show what the data says."""

import re

import pytest

from experiments import pages, papers, printed


@pytest.mark.parametrize("path", pages.paths(), ids=lambda path: path.name)
def test_pages_are_up_to_date(path):
    assert pages.render(path) == path.read_text(), "run python -m experiments.pages"


@pytest.mark.parametrize("key", printed.papers())
def test_a_page_has_every_block_and_no_broken_link(key):
    path = pages.ROOT / "configs" / f"{key}.md"
    text = path.read_text()
    assert set(re.findall(r"<!-- generated: (\w+) -->", text)) == set(pages.BLOCKS)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (path.parent / link).exists(), link
    for name in papers.names_of(key):
        assert f"={name} " in text
