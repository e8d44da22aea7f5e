"""`python -m benchmarks.explore_walk [RAW]`: 300 unlabelled BVH recordings → named groups → classifier →
table, in the explorer.

A script clicks and types in Chromium as a movement scientist would. RAW is a checkout of
github.com/una-dinosauria/cmu-mocap; words of its descriptions stand in for the eye. Without RAW the people of
`examples/make_recordings.py` move. Needs Chromium on the PATH and Playwright. `--keep FOLDER` leaves
recordings, labels and the table there; `--pictures` adds screenshots.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.explore_pictures import FLAGS, start
from tools.encoders.corpus import descriptions

RESULT = Path(__file__).parent / "results" / "explore_walk.json"
# what the eye calls a recording, by words of its description, and how many of each are taken
WORDS = {
    "walking": (r"walk", 60),
    "running": (r"\b(run|jog)", 60),
    "jumping": (r"jump|hop\b|leap", 60),
    "swinging": (r"golf|racket|tennis|baseball|swing", 20),
    "dancing": (r"danc|salsa|ballet|charleston", 24),
    "fighting": (r"punch|box|sword|fight|strike|kick", 17),
}
OTHER, OTHERS = "other", 59
LARGEST = 6_000_000  # bytes of a recording


def chosen_recordings(raw: Path, folder: Path) -> dict[str, str]:
    """Copy recordings of the CMU collection into one folder; what the eye sees in each, by name."""
    told = descriptions(raw / "cmu-mocap-index-text.txt")
    by_class: dict[str, list[Path]] = {name: [] for name in (*WORDS, OTHER)}
    for path in sorted(raw.rglob("*.bvh")):
        words = told.get(path.stem, "").lower()
        named = [name for name, (pattern, _) in WORDS.items() if re.search(pattern, words)]
        if words and len(named) < 2 and path.stat().st_size < LARGEST:
            by_class[named[0] if named else OTHER].append(path)
    seen = {}
    for name, paths in by_class.items():
        count = WORDS[name][1] if name in WORDS else OTHERS
        draw = np.random.default_rng(list(by_class).index(name))
        for place in draw.permutation(len(paths))[:count]:
            shutil.copy(paths[place], folder)
            seen[paths[place].stem] = name
    return seen


def invented_recordings(folder: Path, count: int) -> dict[str, str]:
    """Recordings of `examples/make_recordings.py` without their folders, numbered by chance."""
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "make_recordings.py"))
    draw, seen = np.random.default_rng(0), {}
    for number in range(count):
        movement = str(draw.choice(example["MOVEMENTS"]))
        turns = example["angles"](movement, draw.uniform(2.5, 3.5), draw)
        (folder / f"take_{number:03}.bvh").write_text(example["bvh"](turns, 1.0))
        seen[f"take_{number:03}"] = movement
    return seen


class Walker:
    """Somebody before the page: looks at names of recordings, knows what they are, and labels as one
    would.
    """

    def __init__(self, page: Any, seen: dict[str, str], pictures: Path | None) -> None:
        self.page, self.seen, self.pictures = page, seen, pictures
        self.took: dict[str, float] = {}
        self.given: Counter[str] = Counter()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took[title] = round(time.monotonic() - began, 1)
        if self.pictures is not None:
            self.page.screenshot(path=self.pictures / f"{len(self.took)}-{title.replace(' ', '-')}.png")

    def settle(self) -> None:
        """Until nothing is being worked on."""
        self.page.wait_for_selector(".working", state="detached")

    def give(self, name: str) -> None:
        """Give what is played its class, by number where the class has one."""
        label = self.seen[name]
        keys = [
            one.inner_text().split("\n")
            for one in self.page.locator(".label-bar").first.locator(".chip").all()
        ]
        numbers = {parts[0].strip(): parts[1] for parts in keys if len(parts) > 1}
        if label in numbers:
            self.page.keyboard.press(numbers[label])
        else:
            field = self.page.locator("input[name=label]").first
            field.fill(label)
            field.press("Enter")
        self.until(
            "([name, end]) => { const text = document.querySelector('.notice').textContent;"
            " return text.startsWith(name) && text.includes(end); }",
            [name, f": {label}"],
        )
        self.given[label] += 1

    def until(self, expression: str, value: Any = None) -> None:
        end = time.monotonic() + 120
        while not self.page.evaluate(expression, value):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            self.page.wait_for_timeout(20)


def name_groups(walker: Walker, pure: dict[str, list[int]]) -> None:
    """Type the name of every group that is one thing, and make one group of those that are the same."""
    page, fields = walker.page, ".groups input[maxlength]"
    page.click("#tab-groups")
    for label, numbers in pure.items():
        for number in numbers:
            page.locator(fields).nth(number).fill(label)
            page.locator(fields).nth(number).press("Enter")
            page.wait_for_selector(f".legend li >> text={label}")
    for label in [label for label, numbers in pure.items() if len(numbers) > 1]:
        for line in page.locator(".groups li").all():
            if line.locator("input[maxlength]").input_value() == label:
                line.locator("input[type=checkbox]").check()
        page.click("text=Merge marked")
        walker.until(
            f"name => [...document.querySelectorAll('{fields}')].filter((one) => one.value === name).length"
            " === 1",
            label,
        )


def walk(walker: Walker, groups: int, members: int, more: int) -> dict[str, Any]:
    """All of it; what the page says about its model."""
    page = walker.page
    with walker.step("groups"):
        page.click("#tab-groups")
        page.fill("input[name=count]", str(groups))
        page.click("text=Group again")
        walker.until("count => document.querySelectorAll('.groups li').length === count", groups)
    pure: dict[str, list[int]] = {}
    with walker.step("members of every group"):
        for number in range(groups):
            if number:
                page.click("text=Next: group")
            else:
                page.locator(".groups button:text-is('Show')").first.click()
            page.wait_for_selector(f".chosen h2:has-text('group {number + 1}:')")
            page.locator(".chosen .mini-stage").first.click()
            looked_at = []
            for tile in page.locator(".chosen .mini").all()[:members]:
                tile.locator(".mini-name:not([title=''])").wait_for()
                name = tile.locator(".mini-name").get_attribute("title")
                walker.until("name => document.querySelector('.details dd')?.textContent === name", name)
                walker.until(
                    "row => document.activeElement.closest('.mini')?.dataset.row === row",
                    tile.get_attribute("data-row"),
                )
                walker.give(name)
                looked_at.append(walker.seen[name])
            if len(set(looked_at)) == 1:  # all that was seen of it is one thing
                pure.setdefault(looked_at[0], []).append(number)
    with walker.step("groups are named and merged"):
        name_groups(walker, pure)
    with walker.step("a model of the members"):
        page.click("#tab-label")
        page.wait_for_selector(".accuracy.best")
    with walker.step("what to label next"):
        for _ in range(more):
            before = page.evaluate("halpMap.marks.focus")
            page.keyboard.press("n")
            walker.until("before => halpMap.marks.focus !== before", before)
            page.wait_for_timeout(700)  # a look takes at least as long; the model is fitted meanwhile
            walker.give(page.locator(".panel p b").first.inner_text())
    with walker.step("its accuracy"):
        page.wait_for_selector(".accuracy.best")
        page.wait_for_selector("text=testing itself", state="detached")
    return {
        "named_groups": {name: len(numbers) for name, numbers in pure.items()},
        "says": [" ".join(one.inner_text().split()) for one in page.locator(".accuracy").all()],
    }


def download(page: Any, path: Path) -> list[dict[str, str]]:
    """The table, by recording where the rows are windows."""
    button = page.locator("button:has-text('by recording')")
    with page.expect_download() as found:
        (button if button.count() else page.locator("text=Download table")).first.click()
    found.value.save_as(path)
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def judged(table: list[dict[str, str]], seen: dict[str, str]) -> dict[str, Any]:
    """How many of the recordings that nobody labelled are named rightly."""
    open_rows = [line for line in table if not line["label"]]
    right = Counter(seen[line["recording"]] for line in open_rows if line["best"] == seen[line["recording"]])
    there = Counter(seen[line["recording"]] for line in open_rows)
    shares = {name: f"{right[name]} of {there[name]}" for name in sorted(there)}
    return {
        "unlabelled": len(open_rows),
        "named_rightly": sum(right.values()),
        "share": round(sum(right.values()) / max(1, len(open_rows)), 3),
        "most_frequent_class": round(max(there.values(), default=0) / max(1, len(open_rows)), 3),
        "by_class": shares,
    }


def outside(command: str, folder: Path) -> dict[str, Any]:
    """The command that the page shows, and the table of its model, as one would type them."""
    words = shlex.split(command)
    words[words.index("model")] = str(folder / "model")
    began = time.monotonic()
    for one in (
        words[1:],
        ["classify", "predict", str(folder / "model"), str(folder / "recordings"), "--json"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "halp", *one], check=True, capture_output=True, text=True
        )
    return {
        "fit_and_predict_seconds": round(time.monotonic() - began, 1),
        "lines": len(json.loads(done.stdout)),
    }


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser()
    parser.add_argument("raw", type=Path, nargs="?")
    parser.add_argument("--recordings", type=int, default=300, help="invented ones, if there is no RAW")
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--members", type=int, default=6, help="of every group that are labelled")
    parser.add_argument("--more", type=int, default=40, help="labels that the model asks for")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp())
    recordings = folder / "recordings"
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir(parents=True)
    seen = (
        chosen_recordings(given.raw, recordings)
        if given.raw
        else invented_recordings(recordings, given.recordings)
    )
    for old in folder.glob("recordings.labels.*"):
        old.unlink()
    shutil.rmtree(folder / "model", ignore_errors=True)
    began = time.monotonic()
    process, address = start(recordings)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            page = browser.new_context(
                viewport={"width": 1280, "height": 800}, accept_downloads=True
            ).new_page()
            page.set_default_timeout(120_000)
            page.emulate_media(reduced_motion="reduce")
            walker = Walker(page, seen, folder if given.pictures else None)
            with walker.step("the map"):
                page.goto(address)
                page.wait_for_selector("html[data-ready=true]")
            with walker.step("maps and groups are ready"):
                walker.settle()
            found = walk(walker, given.groups, given.members, given.more)
            with walker.step("the table"):
                table = download(page, folder / "table.csv")
            command = page.locator(".panel code").last.inner_text()
            windows = page.locator(".count").inner_text()
        finally:
            browser.close()
            process.kill()
            process.wait()
    result = {
        "recordings": {"number": len(seen), "opened_as": windows, "classes": dict(Counter(seen.values()))},
        "labels": dict(walker.given),
        "seconds": walker.took,
        "minutes": round((time.monotonic() - began) / 60, 1),
        **found,
        **judged(table, seen),
        "outside": outside(command, folder),
    }
    print(json.dumps(result, indent=1))
    known = json.loads(given.out.read_text()) if given.out.exists() else {}
    known["cmu" if given.raw else "invented"] = result
    given.out.write_text(json.dumps(known, indent=1) + "\n")
    if given.keep is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
