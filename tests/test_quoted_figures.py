"""Figures that pages quote are those of the result files, rounded once."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.hierarchical import hierarchical_interval

ROOT = Path(__file__).parents[1]
KINECT = ("nw-ucla", "utd-mhad", "msr-action3d", "utkinect")
NTU = ("ntu-10 xsub", "ntu-10 xview")
#: SHA-256 of the page as it was registered in commit 7c16114.
REGISTERED = "1e35d054a14a771a8e5272b7b534ce562187ffd2c7c23d3181ad16a7c5ca1f50"


def results(name: str) -> Any:
    return json.loads((ROOT / "experiments" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def rows(page: str, heading: str = "") -> Iterator[list[str]]:
    """Cells of the table rows of a page, or of one of its sections, without bold marks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if heading:
        text = re.split(r"\n## ", text.partition(f"## {heading}\n")[2])[0]
    for line in text.splitlines():
        if line.startswith("| ") and set(line) - set("|-: "):
            yield [cell.strip().replace("*", "") for cell in line.strip("|").split(" | ")]


def shown(value: float) -> str:
    return f"{value:.1f}"


def difference(values: list[float]) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*values).replace("-", "−")


def measured(kind: str, row: str, shots: str, column: str) -> Any:
    """A cell of the few-label file."""
    return results("few_labels")[kind][row][shots]["mean of four" if column == "mean" else column]


WORDS = {
    "halp-base, adapted − plain": "halp-base, adapted − halp-base, plain",
    "twin, adapted − plain": "untrained twin, adapted − untrained twin, plain",
    "halp-base − untrained twin": "halp-base, plain − untrained twin, plain",
    "halp-base − MiniRocket": "halp-base, plain − MiniRocket, plain",
    "halp-base − raw": "halp-base, plain − raw coordinates, plain",
}


def quoted_few_labels() -> Iterator[tuple[str, str, str, str]]:
    """Row, labels per class, column and cell of the page on few labels."""
    page = "docs/appendix/few-labels.md"
    for label, *cells in rows(page, "One label per class"):
        for column, cell in zip((*KINECT, "mean", *NTU), cells):
            yield label, "1", column, cell
    for label, *cells in rows(page, "3, 5 and 10 labels per class"):
        if found := re.fullmatch(r"(\d+) labels", label):
            for column, cell in zip(("mean", *NTU), cells):
                yield "halp-base, adapted − plain", found[1], column, cell
        for column, cell in zip(("mean", *NTU), cells):  # "65.5, 69.0, 71.4": 3, 5 and 10 labels
            for shots, part in zip(("3", "5", "10"), cell.split(", ") if ", " in cell else ()):
                yield label, shots, column, part


def test_page_on_few_labels_quotes_its_files() -> None:
    checked = 0
    for label, shots, column, cell in quoted_few_labels():
        if not label or cell == "–" or not cell.endswith((*"0123456789", ")")):
            continue  # the header, and what was not measured
        kind = "differences" if label in WORDS else "accuracy"
        value = measured(kind, WORDS.get(label, label), shots, column)
        assert cell == (difference(value) if kind == "differences" else shown(value)), (label, shots, column)
        checked += 1
    assert checked >= 100


def test_page_on_robustness_quotes_its_file() -> None:
    mean = results("survives")["mean"]
    found = list(rows("docs/appendix/robustness.md"))
    methods, quoted = found[0][1:], {}
    for name, *cells in found[1:]:
        quoted.setdefault(name, cells)  # later tables name the same damages
    quoted = {name: cells for name, cells in quoted.items() if name in mean["halp-base"]}
    assert quoted
    assert set(quoted) == set(mean["halp-base"])
    assert methods == [method for method in mean if "without smoothing" not in method]
    for damage, cells in quoted.items():
        assert cells == [shown(mean[method][damage]) for method in methods], damage


def test_page_on_robustness_quotes_the_trial_of_copies() -> None:
    sets = results("survives_copies")["sets"]["halp-base"].values()
    quoted = {row[0]: row[1:] for row in rows("docs/appendix/robustness.md", "Damaged copies in the gallery")}
    damages = [name for name in next(iter(sets)) if name != "clean"]
    assert len(damages) == 6
    for name in damages:
        ways = ("as recorded", "with copies", "clean, with copies")
        assert quoted[name] == [shown(sum(one[name][way] for one in sets) / len(sets)) for way in ways], name


def test_readme_quotes_the_transfer_file() -> None:
    found = results("transfer")["methods"]
    names = {
        "raw coordinates, one scale": "raw coordinates",
        "MiniRocket, fitted to each set": "MiniRocket",
        "the architecture of `halp-base`, untrained": "halp-base without training",
        "`halp-base`": "halp-base",
    }
    quoted = {row[0]: row[1:] for row in rows("README.md") if row[0] in names and len(row) == 5}
    assert set(quoted) == set(names)
    for label, cells in quoted.items():
        for name, cell in zip(KINECT, cells, strict=True):
            ridge = found[names[label]][name]["ridge"]
            spread = "" if ridge["std"] is None else f" ± {shown(ridge['std'])}"
            assert cell in (shown(ridge["mean"]) + spread, shown(ridge["mean"])), (label, name)


def test_results_and_readme_quote_the_few_label_file() -> None:
    gaps = results("few_labels")["differences"]
    twin, rocket, adapted = (
        gaps[WORDS[name]]["1"]
        for name in ("halp-base − untrained twin", "halp-base − MiniRocket", "halp-base, adapted − plain")
    )
    table = list(rows("docs/results.md"))
    assert ["one label per class", *(difference(rocket[name]) for name in KINECT)] in table
    assert [difference(twin[name]) for name in (*KINECT, *NTU)] in table
    text = (ROOT / "experiments/trials.md").read_text(encoding="utf-8")
    for row in (rocket, twin):  # figures that changed
        assert ", ".join(f"{row[name][0]:+.1f}" for name in KINECT) in text
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for row in (twin, adapted):
        assert "{:+.1f} (95 %: {:+.1f} to {:+.1f})".format(*row["mean of four"]) in readme
    first, *both = (f"{twin[name][0]:+.1f}" for name in ("utd-mhad", *NTU))
    assert f"UTD-MHAD ({first}) and on ten classes of NTU-60 ({' and '.join(both)})" in readme


def test_page_on_robustness_quotes_what_smoothing_costs() -> None:
    text = " ".join((ROOT / "docs/appendix/robustness.md").read_text(encoding="utf-8").split())
    one, five, ten = (
        results("survives_few")["sets"]["nw-ucla"][f"{shots} per class"]["difference"] for shots in (1, 5, 10)
    )
    assert (
        f"{-one[0]:.1f} points (95 %: {-one[2]:.1f} to {-one[1]:.1f}) with one label, {-five[0]:.1f} with five,"
        f" {-ten[0]:.1f} with ten" in text
    )


def test_page_on_transfer_quotes_what_training_adds() -> None:
    text = " ".join((ROOT / "docs/appendix/transfer.md").read_text(encoding="utf-8").split())
    gaps = results("few_labels")["differences"][WORDS["halp-base − untrained twin"]]["1"]
    *most, last = (shown(gaps[name][0]) for name in KINECT)
    assert f"adds {', '.join(most)} and {last} points with [one label per class]" in text


@pytest.mark.parametrize("page", ["README.md", "docs/when-halp-helps.md", "docs/results.md"])
def test_pages_quote_the_registered_endpoint(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    endpoint = results("endpoint")["endpoint"]
    assert set(endpoint) == {"MoCo", "CMD"}
    for base, found in endpoint.items():
        mean, low, high = found["97.5 % interval"]
        exact = f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"
        short = (f"{mean:.1f}", f"{low:+.1f} to {high:+.1f}")
        assert exact in text or all(part in text for part in short), base


def test_readme_and_results_quote_the_few_label_file() -> None:
    found = results("few_labels")["differences"]
    (quoted,) = [
        row[1:] for row in rows("docs/results.md") if row[0] == "one label per class" and len(row) == 5
    ]
    assert quoted == [difference(found[WORDS["halp-base − MiniRocket"]]["1"][name]) for name in KINECT]
    gain, adapted = (
        found[WORDS[name]]["1"] for name in ("halp-base − untrained twin", "halp-base, adapted − plain")
    )
    shown_gains = [row[-1].replace("95 %: ", "") for row in rows("README.md") if "one per class" in row]
    assert shown_gains == [difference(one["mean of four"]) for one in (gain, adapted)]
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    first, x_sub, x_view = (f"{gain[name][0]:+.1f}" for name in ("utd-mhad", *NTU))
    assert f"UTD-MHAD ({first}) and on ten classes of NTU-60 ({x_sub} and {x_view})" in text


def test_page_on_transfer_quotes_its_file() -> None:
    found, checked = results("transfer"), 0
    text = (ROOT / "docs/appendix/transfer.md").read_text(encoding="utf-8")
    parts = re.split(r"^\| method .*\n", text, flags=re.MULTILINE)[1:]
    for measure, part in zip(("ridge", "paired", "knn"), parts, strict=True):
        for line in part.partition("\n\n")[0].splitlines()[1:]:
            label, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            for name, cell in zip(KINECT, cells, strict=True):
                if measure == "paired":
                    assert cell == difference(found["paired"][label.partition(",")[0]][name]), (label, name)
                else:
                    value = found["methods"][label.replace(", one scale", "")][name][measure]
                    spread = "" if value["std"] is None else f" ± {shown(value['std'])}"
                    assert cell == shown(value["mean"]) + spread, (measure, label, name)
                checked += 1
    assert checked == 4 * (5 + 3 + 5)


def test_page_on_what_training_adds_quotes_its_files() -> None:
    page, found = "docs/appendix/training-pays.md", results("training_pays")
    measures = ("knn", "1 label", "5 labels", "ridge")
    names = {
        "raw coordinates, one scale": "raw coordinates",
        "untrained": "untrained",
        "halp-base of 0.2.0: trained GRU, no invariance": "without invariance",
        "untrained GRU, invariance fitted": "untrained, invariance fitted",
        "halp-base": "halp-base",
        "labels of the other sets, linear": "labels of the other sets",
    }
    every = list(rows(page))
    first = {row[0].replace("`", ""): row[1:] for row in reversed(every) if len(row) == 5}
    for label, name in names.items():
        assert first[label] == [shown(found["accuracy"][name]["mean"][key]) for key in measures], label
    gaps = {row[0]: row[1:] for row in every if len(row) == 7}
    for label in ("1 label", "5 labels"):
        cells = [found["differences"]["halp-base"][name][label] for name in (*KINECT, *NTU)]
        assert gaps[label] == [difference(cell).replace("(+", "(").replace("to +", "to ") for cell in cells]
    control = results("training_pays_control")["accuracy"]
    wide = {row[0]: row[1] for row in rows(page, "Without any view") if len(row) == 2}
    for label in ("without invariance", "large directions shrunk, no views", "halp-base"):
        means = [sum(control[name][label][key] for name in control) / len(control) for key in measures[:3]]
        assert wide[label] == " / ".join(map(shown, means)), label


def test_page_on_ten_classes_quotes_the_endpoint() -> None:
    found, keys = results("endpoint")["accuracy"], ("1 %", "5 %", "10 %", "kNN", "all labels")
    table = {row[0]: row[1:] for row in rows("docs/appendix/ntu10.md", "The registered endpoint")}
    for name in ("untrained", "MoCo", "HaLP", "CMD", "HaLP + CMD"):
        row = found[name.replace("untrained", "untrained MoCo")]
        assert table[name] == [f"{row['xsub'][k][0]:.1f}, {row['xview'][k][0]:.1f}" for k in keys], name
    for name in ("HaLP − MoCo", "HaLP + CMD − CMD"):
        assert table[name][1:] == [corrected(name, key) for key in keys[1:]], name


@pytest.mark.parametrize("page", ["docs/when-halp-helps.md", "docs/results.md"])
def test_pages_quote_the_exploratory_differences(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for key in ("5 %", "kNN", "all labels"):
        assert corrected("HaLP − MoCo", key) in text, key


def corrected(name: str, key: str) -> str:
    """An exploratory difference of the endpoint's file, mean of both splits, with its corrected interval."""
    for row in results("endpoint")["exploratory"]:
        if (row["difference"], row["split"], row["probe"]) == (name, "both", key):
            return difference(row["corrected interval"])
    raise AssertionError(f"{name}, {key} is not in the file")


def test_results_quote_halp_on_motion_capture_with_seeds_and_sets_drawn_again() -> None:
    text = " ".join((ROOT / "docs/results.md").read_text(encoding="utf-8").split())
    means = []
    settings = results("halp_gain")["cells"]
    assert "base" in settings
    for name, cell in settings.items():
        if name == "cmd":
            continue
        ours, base = (cell["methods"][method]["accuracies"]["joint"] for method in ("HaLP", "MoCo"))
        for key, words in (("knn", "kNN"), ("ridge", "ridge")):
            gaps = np.array(
                [np.subtract(ours[place][key], base[place][key]) for place in base]
            )  # (sets, seeds)
            found = hierarchical_interval(gaps.T[:, None])
            means.append(found.mean)
            if name == "base":
                assert f"{found} by {words}" in text
    assert f"the means are {min(means):+.1f} to {max(means):+.1f}".replace("-", "−") in text


def test_page_on_own_training_quotes_its_file() -> None:
    page, measures = "docs/appendix/own-training.md", ("knn", "1 label", "ridge")
    found = {name: one for name, one in results("own_training")["sets"].items() if "MoCo" in one}
    names, *table = [row for row in rows(page, "The shipped encoder, trained further") if len(row) == 4]
    quoted = {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in table}
    assert quoted["paired seeds"] == {
        name: str(min(one["seeds"][method] for method in ("frozen", "MoCo", "HaLP")))
        for name, one in ((name, found[name.lower()]) for name in names[1:])
    }
    for label, key in (("frozen", "frozen"), ("by MoCo", "MoCo"), ("MoCo and HaLP", "HaLP")):
        (cells,) = [row for title, row in quoted.items() if title.endswith(label)]
        for name, cell in cells.items():
            assert cell == " / ".join(shown(found[name.lower()][key][one]) for one in measures), (name, key)
    for title in ("MoCo − frozen", "HaLP − MoCo"):
        for measure, words in zip(measures, ("kNN", "one label", "ridge"), strict=True):
            for name, cell in quoted[f"{title}, {words}"].items():
                assert cell == difference(found[name.lower()][title][measure]), (title, measure, name)
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    curve, checked = results("own_training")["sets"], 0
    for label, *cells in rows(page, "The shipped encoder, trained further"):
        if label in ("250 clips", "1,000 clips"):
            gaps = curve[f"ntu-10 xsub, {label.replace(',', '')}"]["HaLP − frozen"]
            assert cells == [difference(gaps[measure]) for measure in measures], label
            checked += 1
    assert checked == 2
    assert "250 clips" in text


def test_page_on_robustness_quotes_the_step_against_jitter() -> None:
    found = results("survives_steady")["accuracy"]["test"]
    quoted = {row[0].replace("`", ""): row[1:] for row in rows("docs/appendix/robustness.md", "Jitter")}
    assert len(found) == 2
    for name, row in found.items():
        for way in ("as recorded", "steady"):
            cells = [shown(level[way]) for level in row["mean"].values()]
            assert quoted[f"{name.partition(',')[0]}, {way}"] == cells, (name, way)


def test_page_on_trials_quotes_that_of_two_persons() -> None:
    found = results("two_persons")["accuracy"]
    table = {row[0]: row[1:] for row in rows("experiments/trials.md", "Two persons") if len(row) == 3}
    assert len(found) == 5
    for name, measures in found.items():
        cells = table[f"{name}, as shipped" if name == "maximum" else name]
        for place, key in enumerate(("utd-mhad", "msr-action3d")):
            means = [sum(values[key]) / len(values[key]) for values in measures.values()]
            assert cells[place] == " / ".join(map(shown, means)), (name, key)


def test_page_on_views_quotes_its_file() -> None:
    found, page = results("view")["accuracy"], "docs/appendix/views.md"
    names = {
        "raw key points": "raw key points",
        "random weights, nothing fitted": "the same without training",
        "lifting network with random weights, the rest fitted": "lifting untrained, the rest fitted",
        "halp-view": "halp-view",
        "halp-base in 3D": "halp-base in 3D",
    }
    table = {row[0].replace("`", ""): row[1:] for row in rows(page) if len(row) == 4}
    means = {
        label: {probe: [shown(cell["mean"]) for cell in found[name][probe].values()] for probe in found[name]}
        for label, name in names.items()
    }
    for label, probes in means.items():
        quoted = [re.sub(r" \(.*\)", "", cell) for cell in reversed(table[label])]
        # the table of what training contributes has four columns too, but other names
        assert quoted == [" / ".join(probes[probe]) for probe in ("one label", "ridge", "knn")], label
    lost = []
    for label in ("halp-view", "random weights, nothing fitted", "raw key points"):
        knn = found[names[label]]["knn"]
        lost.append(f"{knn['0']['mean'] - knn['90']['mean']:.0f}")
    assert lost in list(rows("docs/results.md"))


def test_page_on_production_quotes_sizes_and_times_of_files() -> None:
    path = ROOT / "benchmarks" / "results" / "runtimes.json"
    found = json.loads(path.read_text(encoding="utf-8"))["cost"]
    table = [row for row in rows("docs/production.md", "One file") if len(row) == 5][1:]
    wanted = [
        [f"`{row['encoder']}`", row["file"], f"{row['megabytes']} MB"]
        + [f"{row[persons]['least_cpu_ms']:.1f} ms" for persons in ("persons: 1", "persons: 2")]
        for row in found
    ]
    assert len(table) == 6
    assert sorted(table) == sorted(wanted)


def test_page_on_readouts_quotes_its_file() -> None:
    found = results("readout")["rows"]
    table = [row for row in rows("docs/appendix/readout.md") if len(row) == 4][1:]
    assert len(table) == 8
    for label, *cells in table:
        name = label.replace("mean of thirds", "thirds").replace("max of thirds", "thirds-max")
        row = found[name if name in found else f"untrained GRU, {name}"]
        for cell, (mean, spread) in zip(cells, (one["test"] for one in row.values()), strict=True):
            assert cell == shown(mean) + ("" if spread is None else f" ± {shown(spread)}"), (label, cell)


def test_page_on_what_halp_adds_quotes_its_baselines() -> None:
    found, table = results("halp_gain")["baselines"], list(rows("docs/appendix/halp-gain.md"))
    for label in ("raw coordinates", "untrained encoder"):
        sets = found[label]
        own, *_ = columns = [
            {probe: statistics.mean(row[probe]) for probe in ("knn", "ridge")} for row in sets.values()
        ]
        every = {probe: statistics.mean(column[probe] for column in columns) for probe in ("knn", "ridge")}
        assert [label, *(f"{shown(c['knn'])} / {shown(c['ridge'])}" for c in (own, every))] in table


def test_the_registered_text_stands_as_it_was_committed() -> None:
    content = (ROOT / "experiments" / "registration.md").read_bytes()
    assert hashlib.sha256(content).hexdigest() == REGISTERED
