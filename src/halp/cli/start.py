"""First commands: the demonstration, the installation, and the recipes."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

from tyro.conf import Positional

from halp._version import DISTRIBUTION
from halp.cli.app import app, note, print_json, show, table_of
from halp.cli.options import Assignments, flat
from halp.core.errors import check_choice

# what `halp recipes` shows without --all
START = (
    "small",
    "small-halp-cmd",
    "cpu-halp",
    "cmu-moco",
    "ntu60-moco",
    "ntu60-halp",
    "ntu60-halp-cmd",
    "ntu120-halp",
)


@app.command
def demo(
    *, out: Path = Path("demo"), clips: int = 1440, seed: int = 0, set: Assignments = (), json: bool = False
) -> None:
    """Train MoCo and HaLP on synthetic people, print a table beside the baselines and write a report.

    Example: halp demo --out demo

    Args:
        out: the folder where data, runs and report.html go; what an earlier demo left there is replaced.
        clips: how many clips to make.
        seed: another seed gives other people and other weights.
        set: override settings of both recipes, such as epochs=60.
        json: print the accuracies as JSON.
    """
    from halp.cli.demo import run_demo
    from halp.evaluation.evaluate_run import verdict
    from halp.reports.tables import accuracies_for_terminal

    outcome = run_demo(out, clips=clips, seed=seed, settings=flat(set))
    answer = {row.name: {result.protocol: result.accuracy for result in row.results} for row in outcome.rows}
    show(answer, accuracies_for_terminal(outcome.rows), json=json)
    note(verdict(outcome.rows))
    note(f"done in {outcome.seconds:.0f} s; open {outcome.report} in a browser")
    store, run = (quote(str(out / name)) for name in ("store", "halp"))
    note(f"open it: halp explore {store} --encoder {run}")


@app.command
def recipes(name: Positional[str] = "", *, all: bool = False, json: bool = False) -> None:
    """List recipes that come with halp, or print one with every default spelled out.

    Args:
        name: a recipe to print.
        all: list every recipe; without it, the table has those to start with.
        json: print all as JSON.
    """
    from halp.core.recipe_list import summarise_recipes

    if name:
        from halp.training import load_recipe

        chosen = load_recipe(name)
        if json:
            print_json(chosen.flat())
        else:
            sys.stdout.write(chosen.to_toml())
        return
    known = summarise_recipes()
    rows = [
        {
            "recipe": key,
            "what it is": recipe.description,
            "epochs": recipe.epochs,
            "terms": " + ".join(recipe.terms),
        }
        for key, recipe in known.items()
        if all or key in START
    ]
    if not all and not json:
        note(f"{len(rows)} of {len(known)} recipes; `halp recipes --all` lists the others")
    show({key: recipe.description for key, recipe in known.items()}, table_of(rows), json=json)


@app.command
def doctor(*, json: bool = False) -> None:
    """Show what is installed, which extras are missing, the devices, and the size of the cache."""
    from halp.cli.doctor import diagnose

    facts = diagnose()
    rows = [
        ("halp", f"{facts['halp']}, Python {facts['python']}, {facts['system']}, {facts['cores']} cores", "")
    ]
    if facts["conflict"]:
        rows.append(
            (
                "conflict",
                facts["conflict"],
                f"pip uninstall halp {DISTRIBUTION}, then pip install {DISTRIBUTION}",
            )
        )
    for name, version in facts["packages"].items():
        rows.append((name, version or "missing", "" if version else f"pip install {name}"))
    for extra, state in facts["extras"].items():
        missing = ", ".join(state["missing"])
        rows.append(
            (f"extra {extra}", f"without {missing}" if missing else "installed", missing and state["install"])
        )
    rows.append(("devices", "; ".join(facts["devices"]), ""))
    cache = facts["cache"]
    if cache["folder"] is None:
        rows.append(("cache", "switched off", "unset HALP_CACHE to keep vectors for the next time"))
    else:
        size = f"{cache['bytes'] / 1e6:,.1f} MB in {cache['files']} files"
        rows.append(("cache", size, f"{cache['folder']} may be removed at any time"))
    columns = ("what", "state", "what to do")
    table = table_of([dict(zip(columns, row)) for row in rows], columns)
    show(facts, table, json=json)


@app.command
def completion(shell: Positional[str] = "bash") -> None:
    """Print a script that completes commands and options: eval "$(halp completion bash)".

    Args:
        shell: bash, zsh or fish.
    """
    from halp.cli.app import CommandGroup, options_of
    from halp.cli.doctor import completion as script

    known = {}
    for name, entry in app.commands.items():
        inner = entry.commands if isinstance(entry, CommandGroup) else {}
        functions = [
            function for function in inner.values() or [entry] if not isinstance(function, CommandGroup)
        ]
        options = dict.fromkeys(option for function in functions for option in options_of(function))
        known[name] = [*sorted(inner), *options]
    sys.stdout.write(script(check_choice("shell", shell, ("bash", "zsh", "fish")), known) + "\n")
