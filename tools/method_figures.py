"""`python tools/method_figures.py`: the figures of docs/method.md and docs/design.md, drawn with what they
explain.

Keys and prototypes lie on a circle, the unit sphere of two dimensions, so that nothing is lost by drawing
them.
"""

from __future__ import annotations

import sys
from math import cos, pi, sin
from pathlib import Path

import torch

from halp.hallucinate import hallucinate
from halp.sphere import hardest_step, slerp

OUT = Path(__file__).resolve().parent.parent / "docs" / "images"
CENTRE, RADIUS = (210.0, 200.0), 150.0
STYLE = (
    "text{font:14px"
    " system-ui,sans-serif;fill:#334}.line{fill:none;stroke:#99a;stroke-width:1.5}.key{fill:#1b6ca8}"
    ".own{fill:#2a9d4a}.other{fill:#c2571a}.kept{fill:#1b6ca8;opacity:.55}.dropped{fill:none;stroke:#c2571a;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){text{fill:#dde}.line{stroke:#778}}"
)


def unit(degrees: float) -> torch.Tensor:
    """The point of the circle at an angle."""
    return torch.tensor([cos(degrees * pi / 180), sin(degrees * pi / 180)], dtype=torch.float64)


def place(point: torch.Tensor, radius: float = RADIUS) -> tuple[float, float]:
    """Where a point of the circle is drawn."""
    return CENTRE[0] + radius * float(point[0]), CENTRE[1] - radius * float(point[1])


def dot(point: torch.Tensor, kind: str, text: str = "", size: float = 6) -> str:
    """A mark on the circle with its name outside."""
    (x, y), (a, b) = place(point), place(point, RADIUS + 22)
    anchor = "start" if point[0] > 0.3 else "end" if point[0] < -0.3 else "middle"
    label = f'<text x="{a:.1f}" y="{b + 5:.1f}" text-anchor="{anchor}">{text}</text>' if text else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" class="{kind}"/>{label}'


def arc(start: torch.Tensor, end: torch.Tensor, radius: float, kind: str = "line") -> str:
    """The way from one point of the circle to another, drawn inside it."""
    steps = [place(slerp(start, end, torch.tensor(t / 24, dtype=torch.float64)), radius) for t in range(25)]
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in steps)}"/>'


def page(title: str, *parts: str) -> str:
    """A picture with a name for those who do not see it."""
    x, y = CENTRE
    circle = f'<circle cx="{x}" cy="{y}" r="{RADIUS}" class="line"/>'
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 390" role="img">'
    head += f"<title>{title}</title><style>{STYLE}</style>"
    return head + circle + "".join(parts) + "</svg>\n"


def walk() -> str:
    """The geodesic from a key towards another prototype, and t* on it."""
    key, own, other = unit(75), unit(100), unit(5)
    furthest = slerp(key, other, hardest_step(key, own, other))
    return page(
        "From the key towards another prototype, no further than t*",
        *(
            arc(key, other, RADIUS - 14),
            dot(own, "own", "own prototype"),
            dot(other, "other", "another prototype"),
        ),
        *(dot(key, "key", "key"), dot(furthest, "dropped", "t*", 7)),
    )


def filtered() -> str:
    """Positives of a key among five prototypes: kept and dropped."""
    key, prototypes = unit(62), torch.stack([unit(angle) for angle in (80, 30, 150, 215, 300)])
    generator = torch.Generator().manual_seed(3)
    positives, kept = hallucinate(key[None], prototypes, count=60, hardness=1.0, generator=generator)
    marks = [
        dot(point, "kept" if stays else "dropped", size=4) for point, stays in zip(positives[0], kept[0])
    ]
    named = [
        dot(point, "own" if index == 0 else "other", f"P{index + 1}")
        for index, point in enumerate(prototypes)
    ]
    title = "Positives that keep P1 as their nearest prototype, and those that the rank filter drops"
    return page(title, *marks, *named, dot(key, "key", "key"))


def architecture() -> str:
    """Packages in rows: each above all that it imports from; lines that follow from others are left out."""
    sys.path.insert(0, str(OUT.parents[1] / "tests"))
    from import_graph import SOURCE, graph, levels

    edges: dict[str, set[str]] = {}
    for package, others in graph().items():
        name, tops = package.split(".")[0], {other.split(".")[0] for other in others}
        if (SOURCE / name).is_dir():
            edges.setdefault(name, set()).update(
                top for top in tops if top != name and (SOURCE / top).is_dir()
            )
    rows = levels(edges)[::-1]
    below: dict[str, set[str]] = {}
    for row in rows[::-1]:
        below.update({name: edges[name].union(*(below[other] for other in edges[name])) for name in row})
    needed = {
        name: {o for o in others if not any(o in below[p] for p in others)} for name, others in edges.items()
    }
    places = {
        name: (360 + (column - (len(row) - 1) / 2) * 130, 30 + 62 * number)
        for number, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    parts = []
    for name, others in needed.items():
        (x, y), ends = places[name], [places[other] for other in sorted(others)]
        parts += [
            f'<path class="line" d="M{x},{y + 15}C{x},{y + 40} {a},{b - 40} {a},{b - 15}"/>' for a, b in ends
        ]
    for name, (x, y) in places.items():
        parts.append(f'<rect class="box" x="{x - 54}" y="{y - 15}" width="108" height="30" rx="6"/>')
        parts.append(f'<text x="{x}" y="{y + 5}" text-anchor="middle">{name}</text>')
    style = STYLE + ".box{fill:#e8eef5;stroke:#1b6ca8}@media(prefers-color-scheme:dark){.box{fill:#223}}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {62 * len(rows)}" role="img">'
    return (
        f"{head}<title>Which package imports from which</title><style>{style}</style>{''.join(parts)}</svg>\n"
    )


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for name, draw in (("walk", walk), ("filter", filtered), ("architecture", architecture)):
        (OUT / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
