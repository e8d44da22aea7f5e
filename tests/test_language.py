"""Plain technical English: a short list of phrases that must not come back into texts that people read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# phrase → what to write
PHRASES = {
    r"\bshapes? that (is|are) none\b": "an invalid shape",
    r"\bcharacters that are none\b": "unpaired surrogates",
    r"\bmade again\b": "recomputed, repeated",
    r"\bwith a word\b": "with a warning",
    r"\banew\b": "again",
    r"\bso many (seconds|frames|steps|epochs|clips|items|recordings|folds|vectors)\b": (
        "N seconds, this many frames"
    ),
    r"\bin place of\b": "instead of",
    r"\bwhere (there (is|are|was|were)|it is there)\b": "if there is",
    r"\bmend(s|ed)?\b": "fix, repair",
    r"\bwaits for nobody\b": "short timeouts",
    r"\bwhole or (not at all|absent)\b": "atomically",
    r"\bthe command goes on\b": "run the command again to resume",
    r"\bforget_unsure|refuse_twins|leaving_out|kept_array|beside_neighbours\b": (
        "mask_low_scores, check_unique_names, …"
    ),
}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MODULES = sorted((ROOT / "src" / "halp").rglob("*.py"))
# guides are short and keep their code within the width of the site
GUIDES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "appendix"]
WORDS, WORDS_OF_A_PAGE, COLUMNS = 29_000, 1_400, 76  # bars and rules of tables are no words


@pytest.mark.parametrize("pattern", PHRASES)
def test_phrase_is_not_used(pattern: str) -> None:
    phrase = re.compile(pattern, re.IGNORECASE)
    used = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in [*PAGES, *MODULES]
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if phrase.search(line)
    ]
    assert not used, f"write: {PHRASES[pattern]}"


def test_documentation_and_its_pages_are_short() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    counts = {page: len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8"))) for page in pages}
    assert sum(counts.values()) <= WORDS
    assert not [page.name for page, words in counts.items() if words > WORDS_OF_A_PAGE]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_code_of_a_guide_fits_the_site(page: Path) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert not [line for block in blocks for line in block.splitlines() if len(line) > COLUMNS]
