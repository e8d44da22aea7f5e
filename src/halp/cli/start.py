"""Commands to begin with: the demonstration and the recipes."""

from __future__ import annotations

import sys
from pathlib import Path

from tyro.conf import Positional

from halp.cli.app import Settings, app, flat, print_json, print_table


@app.command
def demo(
    *, folder: Path = Path("demo"), clips: int = 1440, seed: int = 0, set: Settings = (), json: bool = False
) -> None:
    """Train MoCo and HaLP on synthetic people, print a table and write a report. Takes about two minutes.

    Example: halp demo --folder demo

    Args:
        folder: where data, runs and report.html go; what an earlier demo left there is replaced.
        clips: how many clips to make.
        seed: another seed gives other people and other weights.
        set: override settings of both recipes, such as epochs=10.
        json: print the accuracies as JSON.
    """
    from halp.demo import run_demo
    from halp.progress import console
    from halp.reports.tables import accuracies_for_terminal

    made = run_demo(folder, clips=clips, seed=seed, settings=flat(set))
    if json:
        print_json({row.name: {result.protocol: result.accuracy for result in row.results} for row in made.rows})
    else:
        print_table(accuracies_for_terminal(made.rows))
    console.print(f"done in {made.seconds:.0f} s; open [bold]{made.report}[/] in a browser")


@app.command
def recipes(name: Positional[str] = "", *, json: bool = False) -> None:
    """List the recipes that come with halp, or print one with every default spelled out.

    Args:
        name: a recipe to print.
        json: print as JSON.
    """
    from rich.table import Table

    from halp.recipe_list import summarise_recipes

    if name:
        from halp.training import load_recipe

        chosen = load_recipe(name)
        if json:
            print_json(chosen.flat())
        else:
            sys.stdout.write(chosen.to_toml())
        return
    known = summarise_recipes()
    if json:
        print_json({key: recipe.description for key, recipe in known.items()})
        return
    table = Table("recipe", "what it is", "epochs", "terms")
    for key, recipe in known.items():
        table.add_row(key, recipe.description, str(recipe.epochs), " + ".join(recipe.terms))
    print_table(table)
