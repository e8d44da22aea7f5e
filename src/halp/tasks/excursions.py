"""Excursions of a curve from its resting value and back; the component whose excursions are repetitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halp.tasks.pose_tracks import Floats

COMPONENTS = 5
FASTEST = 0.35  # seconds of the quickest repetition
_LIKE = 0.5  # of the usual prominence, below which an excursion is partial
_FAINT = 0.2  # of the usual prominence, below which it is nothing
_REST = 0.08  # of the height of an excursion, below which it has not begun or has ended
_ABOVE_NOISE = (
    0.1  # mean bone lengths that an excursion has to move the whole body by, root mean square over joints
)
SAMPLES = 48


def best_component(values: Floats, fps: float, joints: int) -> tuple[Floats, list[tuple[int, int, bool]]]:
    """The principal component with the longest path over similar excursions, and their spans."""
    centred = values - values.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return best_curve(
        [centred @ axis for axis in axes[:COMPONENTS]], centred, fps, _ABOVE_NOISE * np.sqrt(joints)
    )


def best_curve(
    curves: Sequence[Floats], centred: Floats, fps: float, smallest: float
) -> tuple[Floats, list[tuple[int, int, bool]]]:
    """The curve, upwards or downwards, with the longest path over similar excursions, and their spans."""
    best: tuple[float, Floats, list[tuple[int, int, bool]]] = 0.0, curves[0], []
    for curve in curves:
        for side in (curve, -curve):
            spans, way = _excursions(side, fps, smallest)
            way *= _similarity_of_spans(
                centred, [(first, last) for first, last, partial in spans if not partial]
            )
            # rest is where people begin and end: a curve that is high there shows the pauses and not the
            # movement
            edge = max(1, round(0.2 * fps))
            low, high = np.percentile(side, [5, 95])
            rest = (np.median(np.r_[side[:edge], side[-edge:]]) - low) / max(high - low, 1e-9)
            weight = way * (1.0 if rest < 0.5 else 0.6)
            if weight > best[0]:
                best = weight, side, spans
    return best[1], best[2]


def _excursions(curve: Floats, fps: float, smallest: float) -> tuple[list[tuple[int, int, bool]], float]:
    """Spans of similar peaks, with partial ones marked, and the summed prominence of the whole ones."""
    from scipy.signal import find_peaks

    peaks, facts = find_peaks(curve, prominence=smallest, distance=max(1, round(FASTEST * fps)))
    prominence = facts["prominences"]
    if not len(peaks):
        return [], 0.0
    # the usual prominence is that of the most peaks that are at least as prominent: neither a fidget nor
    # noise sets it
    ordered = np.sort(prominence)[::-1]
    usual = float(ordered[(ordered * np.arange(1, len(ordered) + 1)).argmax()])
    usual = float(np.median(prominence[prominence >= usual]))
    kept = prominence >= _FAINT * usual
    peaks, prominence = peaks[kept], prominence[kept]
    spans = []
    for number, (peak, height) in enumerate(zip(peaks, prominence)):
        before = int(peaks[number - 1]) if number else 0
        after = int(peaks[number + 1]) if number + 1 < len(peaks) else len(curve) - 1
        first = _end_of_flank(curve, int(peak), before, -1)
        last = _end_of_flank(curve, int(peak), after, 1)
        spans.append((first, last, bool(height < _LIKE * usual)))
    return _with_cut_off(curve, spans, _FAINT * usual), float(prominence[prominence >= _LIKE * usual].sum())


def _with_cut_off(
    curve: Floats, spans: list[tuple[int, int, bool]], smallest: float
) -> list[tuple[int, int, bool]]:
    """The spans with partial repetitions at the start or end of the recording: flanks without a peak."""
    first, last = spans[0][0], spans[-1][1]
    end = len(curve) - 1
    if first > 0 and curve[0] == curve[: first + 1].max() and curve[0] - curve[: first + 1].min() >= smallest:
        spans = [(0, min(_end_of_flank(curve, 0, first, 1), first), True), *spans]
    if last < end and curve[-1] == curve[last:].max() and curve[-1] - curve[last:].min() >= smallest:
        spans = [*spans, (max(_end_of_flank(curve, end, last, -1), last), end, True)]
    return spans


def _similarity_of_spans(values: Floats, spans: list[tuple[int, int]]) -> float:
    """Share of the movement within spans explained by their mean: low if two kinds alternate."""
    if len(spans) < 2:
        return 0.5
    cuts = np.stack([resampled(values[first : last + 1], SAMPLES // 2) for first, last in spans])
    total = ((cuts - cuts.mean((0, 1))) ** 2).sum()
    return float(max(0.0, 1 - ((cuts - cuts.mean(0)) ** 2).sum() / total)) if total > 0 else 0.0


def _end_of_flank(curve: Floats, peak: int, limit: int, step: int) -> int:
    """The end of a peak's flank towards `limit`: the last frame above a fraction of its height."""
    flank = curve[peak : limit + 1] if step > 0 else curve[limit : peak + 1][::-1]
    low = flank.min()
    below = np.flatnonzero(flank <= low + _REST * (curve[peak] - low))
    return peak + step * int(below[0])


def resampled(values: Floats, count: int) -> Floats:
    """Values `(T, D)` at `count` even moments."""
    at = np.linspace(0, len(values) - 1, count)
    low = np.minimum(at.astype(int), max(len(values) - 2, 0))
    way = (at - low)[:, None]
    return values[low] * (1 - way) + values[np.minimum(low + 1, len(values) - 1)] * way


def spectral_arc_length(speed: npt.ArrayLike, fps: float) -> float | None:
    """Smoothness of a speed profile: minus the arc length of its normalised spectrum up to 10 Hz.

    After the definition of Balasubramanian and others (2012): the spectrum is cut where it stays below 5 %.
    """
    values = np.asarray(speed, dtype=np.float64)
    if len(values) < 4 or not values.any():
        return None
    size = 2 ** (int(np.ceil(np.log2(len(values)))) + 4)
    frequency = np.arange(size) * fps / size
    spectrum = np.abs(np.fft.fft(values, size))
    spectrum = (spectrum / spectrum.max())[frequency <= min(10.0, fps / 2)]
    frequency = frequency[: len(spectrum)]
    last = int(np.flatnonzero(spectrum >= 0.05).max())
    frequency, spectrum = frequency[: last + 1], spectrum[: last + 1]
    if len(frequency) < 2:
        return None
    steps = np.diff(frequency) / (frequency[-1] - frequency[0])
    return float(-np.sqrt(steps**2 + np.diff(spectrum) ** 2).sum())
