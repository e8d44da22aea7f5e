"""Scales with nice ticks, and the axes drawn from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halp.reports.drawing import WIDTH, Floats, escape_text, format_number, legend, tag, text_width

RIGHT = WIDTH - 14
_NOTHING = 1e-100


def nonempty_range(low: float, high: float) -> tuple[float, float]:
    """A range with an extent, even if all values are the same."""
    low, high = min(low, high), max(low, high)
    size = max(abs(low), abs(high))
    if high - low > max(1e-9 * size, _NOTHING):
        return low, high
    room = 0.1 * size if size > _NOTHING else 1.0
    return low - room, high + room


def tick_step(low: float, high: float, count: int = 6, whole: bool = False) -> float:
    """The round distance (1, 2, 2.5 or 5 times a power of ten) that gives about `count` ticks."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    if whole and raw <= 1:
        return 1.0
    factors = (1, 2, 5, 10) if whole and power < 10 else (1, 2, 2.5, 5, 10)
    return next(factor * power for factor in factors if factor * power >= raw * (1 - 1e-9))


def tick_text(value: float, step: float) -> str:
    """A tick with as many decimals as its step needs."""
    if abs(value) >= 1e6 or step < 1e-5:
        return format_number(value)
    decimals = next(d for d in range(12) if abs(round(step, d) - step) < 1e-6 * step)
    text = f"{value:.{decimals}f}"
    return text.replace("-", "" if float(text) == 0 else "−")


@dataclass(frozen=True)
class AxisScale:
    """A linear map of values `low … high` onto pixels `start … end`, with ticks `step` apart."""

    low: float
    high: float
    start: float
    end: float
    step: float

    @classmethod
    def fit(
        cls,
        values: Floats,
        start: float,
        end: float,
        *,
        limits: tuple[float, float] | None = None,
        rounded: bool = False,
        whole: bool = False,
        count: int = 6,
    ) -> AxisScale:
        """Cover all values, or the given limits; `rounded` ends at ticks, `whole` puts ticks at integers."""
        known = values[np.isfinite(values)]
        low, high = limits or ((float(known.min()), float(known.max())) if len(known) else (0.0, 1.0))
        low, high = nonempty_range(low, high)
        step = tick_step(low, high, count, whole)
        if rounded and not limits:
            low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        return cls(low, high, start, end, step)

    def __call__(self, value: float) -> float:
        return float(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start))

    @property
    def ticks(self) -> list[float]:
        first = math.ceil(self.low / self.step - 1e-9)
        last = math.floor(self.high / self.step + 1e-9)
        return [tick * self.step for tick in range(first, last + 1)]

    @property
    def labels(self) -> list[str]:
        return [tick_text(tick, self.step) for tick in self.ticks]


def legend_above(
    names: Sequence[str], paints: Sequence[str], title: str, *, lines: bool = False
) -> tuple[str, float]:
    """The legend under the title, and where the plot begins."""
    keys, tall = legend(names, paints, 28 if title else 2, lines=lines)
    return keys, (28 if title else 2) + tall + 14


def y_axis_width(y: AxisScale, label: str) -> float:
    return max(text_width(text, 12) for text in y.labels or [""]) + (34 if label else 14)


def y_axis(y: AxisScale, left: float, label: str) -> str:
    parts = []
    for tick, text in zip(y.ticks, y.labels):
        parts.append(tag("path", d=f"M{left:.2f},{y(tick):.2f}H{RIGHT:.2f}", class_="grid"))
        parts.append(tag("text", text, x=left - 8, y=y(tick) + 4, text_anchor="end"))
    return "".join(parts) + (rotated_label(label, 12, (y.start + y.end) / 2) if label else "")


def x_axis(x: AxisScale, bottom: float, label: str) -> str:
    parts = [tag("path", d=f"M{x.start:.2f},{bottom:.2f}H{x.end:.2f}", class_="axis")]
    for tick, text in zip(x.ticks, x.labels):
        parts.append(tag("path", d=f"M{x(tick):.2f},{bottom:.2f}v5", class_="axis"))
        place = min(x(tick), WIDTH - text_width(text, 12) / 2)
        parts.append(tag("text", text, x=place, y=bottom + 19, text_anchor="middle"))
    if label:
        parts.append(
            tag("text", escape_text(label), x=(x.start + x.end) / 2, y=bottom + 38, text_anchor="middle")
        )
    return "".join(parts)


def rotated_label(label: str, x: float, y: float) -> str:
    return tag(
        "text", escape_text(label), transform=f"translate({x:.1f} {y:.1f}) rotate(-90)", text_anchor="middle"
    )


def no_data_label(x: float, y: float) -> str:
    return tag("text", "no data", x=x, y=y, text_anchor="middle")
