"""Growth of a step as an SVG: one panel a size, both axes logarithmic, with the line of linear growth beside
it.
"""

from __future__ import annotations

import math
from typing import Any

WIDE, HIGH, EDGE = 230, 200, 42


def plot(curves: dict[str, list[dict[str, Any]]]) -> str:
    """One panel for every curve `[{size, milliseconds}, …]`."""
    panels = "".join(_panel(title, points, number) for number, (title, points) in enumerate(curves.items()))
    width = WIDE * len(curves)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HIGH}" width="{width}"'
        f' height="{HIGH}" font-family="sans-serif" font-size="10"><rect width="{width}" height="{HIGH}"'
        f' fill="white"/>{panels}</svg>\n'
    )


def _panel(title: str, points: list[dict[str, Any]], number: int) -> str:
    sizes = [math.log10(point["size"]) for point in points]
    times = [math.log10(point["milliseconds"]) for point in points]
    low, high = min(times) - 0.3, max(times[0] + sizes[-1] - sizes[0], max(times)) + 0.1
    left, right, top, bottom = number * WIDE + EDGE, (number + 1) * WIDE - 12, 24, HIGH - 32

    def place(size: float, time: float) -> str:
        x = left + (size - sizes[0]) / (sizes[-1] - sizes[0]) * (right - left)
        return f"{x:.1f},{bottom - (time - low) / (high - low) * (bottom - top):.1f}"

    line = " ".join(place(size, time) for size, time in zip(sizes, times))
    linear = f"{place(sizes[0], times[0])} {place(sizes[-1], times[0] + sizes[-1] - sizes[0])}"
    marks = "".join(
        f'<circle cx="{place(size, time).split(",")[0]}" cy="{place(size, time).split(",")[1]}" r="3"'
        f' fill="#1f6f8b"/><text x="{place(size, time).split(",")[0]}" y="{bottom + 14}"'
        f' text-anchor="middle">{point["size"]}</text><text x="{place(size, time).split(",")[0]}"'
        f' y="{float(place(size, time).split(",")[1]) + 14:.1f}" text-anchor="middle"'
        f' fill="#1f6f8b">{point["milliseconds"]:.3g} ms</text>'
        for size, time, point in zip(sizes, times, points)
    )
    return (
        f'<text x="{left}" y="14" font-weight="bold">{title}</text>'
        f'<polyline points="{linear}" fill="none" stroke="#bbb" stroke-dasharray="4 3"/>'
        f'<polyline points="{line}" fill="none" stroke="#1f6f8b" stroke-width="2"/>'
        f'<path d="M{left},{top} V{bottom} H{right}" fill="none" stroke="#333"/>{marks}'
    )
