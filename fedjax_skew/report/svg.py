"""Drawings for the HTML report as SVG text: small, sharp at any size, no library in the page.

Every text that comes from outside is escaped. Series carry ``data-series``, so that the page can
hide them.
"""

import base64
import html
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_skew.report import style

_DASHES = ("", "7 3", "7 3 2 3", "2 2")
_MOST_POINTS = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 40


class Series(NamedTuple):
    """One curve in percent: rounds, mean, and standard deviation or None, each ``[T]``."""

    key: str
    name: str
    rounds: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None


def look(index: int) -> tuple[str, str]:
    """Colour and dashes of the n-th series."""
    size = len(style.COLORS)
    return style.COLORS[index % size], _DASHES[(index // size) % len(_DASHES)]


def curves(series: Sequence[Series], *, width: int = 720, height: int = 320) -> str:
    """Accuracy over rounds: lines for means, bands of one standard deviation."""
    shown = [s for s in series if len(s.rounds)]
    if not shown:
        return '<p class="none">No evaluation yet.</p>'
    last = max(float(s.rounds[-1]) for s in shown)
    values = np.concatenate([s.mean[np.isfinite(s.mean)] for s in shown])
    low, high = (values.min(), values.max()) if values.size else (0.0, 100.0)
    ticks = _ticks(max(low - 2, 0), min(high + 2, 100))
    low, high = ticks[0], ticks[-1]

    def x(value: float) -> float:
        return _LEFT + (width - _LEFT - _RIGHT) * value / last

    def y(value: float) -> float:
        share = (min(max(value, low), high) - low) / max(high - low, 1e-9)
        return height - _BOTTOM - (height - _TOP - _BOTTOM) * share

    parts = [_open(width, height, "Test accuracy over rounds")]
    parts += _axes(
        width,
        height,
        [(x(t), f"{t:g}") for t in _ticks(0, last) if t <= last],
        [(y(t), f"{t:g}") for t in ticks],
        "round",
        "test accuracy (%)",
    )
    for index, one in enumerate(series):
        at = _thin(len(one.rounds))
        good = [i for i in at if math.isfinite(one.mean[i])]
        color, dash = look(index)
        label = html.escape(one.name)
        parts.append(f'<g data-series="{html.escape(one.key)}"><title>{label}</title>')
        if one.std is not None and len(good) > 1:
            up = [f"{x(one.rounds[i]):.1f},{y(one.mean[i] + one.std[i]):.1f}" for i in good]
            down = [f"{x(one.rounds[i]):.1f},{y(one.mean[i] - one.std[i]):.1f}" for i in good]
            parts.append(
                f'<polygon points="{" ".join(up + down[::-1])}" fill="{color}" opacity="0.15"/>'
            )
        points = " ".join(f"{x(one.rounds[i]):.1f},{y(one.mean[i]):.1f}" for i in good)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8" '
            f'stroke-dasharray="{dash}"/>'
        )
        if good:
            i = good[-1]
            parts.append(
                f'<circle cx="{x(one.rounds[i]):.1f}" cy="{y(one.mean[i]):.1f}" r="3" '
                f'fill="{color}"/>'
            )
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def class_bars(
    accuracy: np.ndarray, std: np.ndarray | None, counts: np.ndarray | None, *, width: int = 720
) -> str:
    """Accuracy per class in percent, with its training samples relative to the largest class."""
    height, classes = 220, len(accuracy)
    step = (width - _LEFT - _RIGHT) / classes
    inner = height - _TOP - _BOTTOM
    parts = [_open(width, height, "Accuracy per class")]
    every = max(1, math.ceil(classes / 25))
    parts += _axes(
        width,
        height,
        [(_LEFT + (c + 0.5) * step, str(c)) for c in range(0, classes, every)],
        [(height - _BOTTOM - inner * t / 100, str(t)) for t in (0, 25, 50, 75, 100)],
        "class" + (" (dark line: its training samples)" if counts is not None else ""),
        "accuracy (%)",
    )
    for c, value in enumerate(accuracy):
        if not math.isfinite(value):
            continue
        left, bar = _LEFT + (c + 0.15) * step, inner * value / 100
        spread = f" +- {std[c]:.1f}" if std is not None and math.isfinite(std[c]) else ""
        samples = f", {int(counts[c])} training samples" if counts is not None else ""
        parts.append(
            f'<rect x="{left:.1f}" y="{height - _BOTTOM - bar:.1f}" width="{0.7 * step:.1f}" '
            f'height="{bar:.1f}" fill="{style.COLORS[0]}">'
            f"<title>class {c}: {value:.1f} %{spread}{samples}</title></rect>"
        )
    if counts is not None and counts.sum():
        for c, share in enumerate(counts / counts.max()):
            at = height - _BOTTOM - inner * share
            parts.append(
                f'<line x1="{_LEFT + (c + 0.1) * step:.1f}" x2="{_LEFT + (c + 0.9) * step:.1f}" '
                f'y1="{at:.1f}" y2="{at:.1f}" stroke="#222" stroke-width="2"/>'
            )
    return "".join([*parts, "</svg>"])


def heatmap(counts: np.ndarray, *, width: int = 720) -> str:
    """Samples of every class (upwards) and client (sideways), ``counts [C, K]``."""
    from PIL import Image

    classes, clients = counts.shape
    height = int(np.clip(26 * classes + _TOP + _BOTTOM, 160, 420))
    inner_w, inner_h = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    # The square root leaves small counts visible beside large ones; none at all is white.
    shade = np.sqrt(counts / max(counts.max(), 1))[::-1, :, None]
    light, dark = np.array([222.0, 235, 247]), np.array([8.0, 48, 107])
    pixels = np.where(shade > 0, light + (dark - light) * shade, 255.0).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    parts = [_open(width, height, "Samples per class and client")]
    parts.append(
        f'<image href="data:image/png;base64,{data}" x="{_LEFT}" y="{_TOP}" width="{inner_w}" '
        f'height="{inner_h}" preserveAspectRatio="none" style="image-rendering:pixelated"/>'
    )
    every_k, every_c = max(1, math.ceil(clients / 20)), max(1, math.ceil(classes / 12))
    step_x, step_y = inner_w / clients, inner_h / classes
    parts += _axes(
        width,
        height,
        [(_LEFT + (k + 0.5) * step_x, str(k)) for k in range(0, clients, every_k)],
        [(height - _BOTTOM - (c + 0.5) * step_y, str(c)) for c in range(0, classes, every_c)],
        f"client (darkest: {int(counts.max())} samples; white: none)",
        "class",
        grid=False,
    )
    if clients <= 20 and classes <= 20:
        for c in range(classes):
            for k in range(clients):
                if counts[c, k]:
                    ink = "#fff" if counts[c, k] > 0.3 * counts.max() else "#222"
                    parts.append(
                        f'<text x="{_LEFT + (k + 0.5) * step_x:.1f}" fill="{ink}" font-size="9" '
                        f'y="{height - _BOTTOM - (c + 0.5) * step_y + 3:.1f}" '
                        f'text-anchor="middle">{int(counts[c, k])}</text>'
                    )
    return "".join([*parts, "</svg>"])


def _open(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{html.escape(title)}" font-family="inherit">'
    )


def _axes(
    width: int,
    height: int,
    horizontal: Sequence[tuple[float, str]],
    vertical: Sequence[tuple[float, str]],
    xlabel: str,
    ylabel: str,
    grid: bool = True,
) -> list[str]:
    bottom, parts = height - _BOTTOM, []
    for at, text in vertical:
        if grid:
            parts.append(
                f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" '
                'stroke="#ddd"/>'
            )
        parts.append(
            f'<text x="{_LEFT - 6}" y="{at + 3.5:.1f}" font-size="11" text-anchor="end">'
            f"{html.escape(text)}</text>"
        )
    for at, text in horizontal:
        parts.append(
            f'<text x="{at:.1f}" y="{bottom + 15}" font-size="11" text-anchor="middle">'
            f"{html.escape(text)}</text>"
        )
    parts.append(
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{width - _RIGHT}" fill="none" stroke="#444"/>'
        f'<text x="{(_LEFT + width) / 2}" y="{height - 6}" font-size="12" text-anchor="middle">'
        f"{html.escape(xlabel)}</text>"
        f'<text transform="translate(12 {(_TOP + bottom) / 2}) rotate(-90)" font-size="12" '
        f'text-anchor="middle">{html.escape(ylabel)}</text>'
    )
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from below ``low`` to above ``high``, about six."""
    span = max(high - low, 1e-6)
    size = 10 ** math.floor(math.log10(span / 5))
    size *= next(m for m in (1, 2, 5, 10) if span / (size * m) <= 6)
    first, last = math.floor(low / size), math.ceil(high / size)
    return [round(i * size, 10) for i in range(first, last + 1)]


def _thin(length: int) -> list[int]:
    """At most 300 places, evenly spaced, the last one included."""
    if length <= _MOST_POINTS:
        return list(range(length))
    return sorted({round(i) for i in np.linspace(0, length - 1, _MOST_POINTS)})
