"""A picture of an overlay: brokers, and links as wide as what went over them. SVG is written here, PNG needs
matplotlib."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import rustworkx as rx

from tidings.model.errors import InvalidValueError, MissingPackageError
from tidings.model.packages import installation
from tidings.simulation.scenario import Outcome

FORMATS = (".svg", ".png")
_SIZE, _MARGIN, _HEAD = 800, 50, 40  # pixels
_WIDEST, _THINNEST = 14.0, 1.0
_MANY = 60  # with more brokers than that, names and numbers would hide the picture
_BLUE, _GREY, _INK = "#1f77b4", "#b8c4cf", "#222222"


class Dot(NamedTuple):
    name: str
    x: float
    y: float
    is_labelled: bool


class Line(NamedTuple):
    """From one broker to another; one that nothing went over is grey."""

    one: Dot
    other: Dot
    width: float
    label: str

    @property
    def spot(self) -> tuple[float, float]:
        """Where the label stands: not in the middle, where links often cross."""
        return 0.6 * self.one.x + 0.4 * self.other.x, 0.6 * self.one.y + 0.4 * self.other.y


class Picture(NamedTuple):
    title: str
    dots: list[Dot]
    lines: list[Line]


def checked_picture(path: Path) -> Path:
    """Before anything is run: whether it can be drawn where, and as what, it is asked for."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidValueError(f"{path}: a picture is written as {' or '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise InvalidValueError(f"{path}: there is no folder {path.parent}")
    if path.suffix.lower() == ".png":
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            command = installation("matplotlib")
            raise MissingPackageError(f"PNG needs matplotlib ({command}); an .svg needs nothing more") from None
    return path


def draw(outcome: Outcome, path: Path) -> None:
    picture = pictured(outcome)
    if path.suffix.lower() == ".svg":
        path.write_text("\n".join(_svg(picture)) + "\n", "utf-8")
    else:
        _write_png(picture, path)


def pictured(outcome: Outcome) -> Picture:
    """Brokers that are linked are near each other; the busiest link is the widest."""
    names = list(outcome.tables)
    places = {name: number for number, name in enumerate(names)}
    graph: rx.PyGraph[str, int] = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(names)
    graph.add_edges_from([(places[link.one], places[link.other], 1) for link in outcome.links])
    laid = rx.spring_layout(graph, seed=1, num_iter=200) if outcome.links else rx.circular_layout(graph)
    spots = _fitted([(float(laid[place][0]), float(laid[place][1])) for place in range(len(names))])
    few = len(names) <= _MANY
    dots = {name: Dot(name, x, y, few) for name, (x, y) in zip(names, spots, strict=True)}
    most = max((link.messages for link in outcome.links), default=0)
    lines = [
        Line(
            dots[link.one],
            dots[link.other],
            _THINNEST + (_WIDEST - _THINNEST) * link.messages / most if link.messages else 0.0,
            f"{link.messages:,}" if few and link.messages else "",
        )
        for link in outcome.links
    ]
    title = f"{outcome.strategy}, seed {outcome.seed}: messages per link, {outcome.published:,} events published"
    return Picture(title, list(dots.values()), lines)


def _fitted(spots: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """To the sheet, each direction for itself; a single broker is in the middle."""
    found = []
    for values in zip(*spots, strict=True):
        low, span = min(values), max(values) - min(values)
        room = _SIZE - 2 * _MARGIN
        found.append([_MARGIN + room * ((value - low) / span if span else 0.5) for value in values])
    return list(zip(*found, strict=True))


def _svg(picture: Picture) -> Iterator[str]:
    height = _SIZE + _HEAD
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SIZE}" height="{height}" viewBox="0 0 {_SIZE} {height}" '
        'font-family="sans-serif">'
    )
    yield f'<rect width="{_SIZE}" height="{height}" fill="white"/>'
    yield f'<text x="{_MARGIN}" y="26" font-size="16" fill="{_INK}">{escape(picture.title)}</text>'
    yield f'<g transform="translate(0 {_HEAD})">'
    for one, other, width, _ in picture.lines:
        drawn = f'stroke="{_BLUE}" stroke-width="{width:.1f}"' if width else f'stroke="{_GREY}" stroke-dasharray="4"'
        yield f'<line x1="{one.x:.1f}" y1="{one.y:.1f}" x2="{other.x:.1f}" y2="{other.y:.1f}" {drawn}/>'
    for dot in picture.dots:
        yield f'<circle cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="{16 if dot.is_labelled else 4}" fill="{_INK}"/>'
        if dot.is_labelled:
            yield _svg_text(dot.x, dot.y + 4, 11, "white", dot.name)
    for line in picture.lines:
        if line.label:
            yield _svg_text(line.spot[0], line.spot[1] + 4, 12, _INK, line.label)
    yield "</g></svg>"


def _svg_text(x: float, y: float, size: int, colour: str, text: str) -> str:
    halo = 'stroke="white" stroke-width="3" paint-order="stroke" ' if colour != "white" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="middle" {halo}fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _write_png(picture: Picture, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke

    figure = Figure(figsize=(8, 8.4), layout="constrained")
    axes = figure.add_subplot()
    halo = [withStroke(linewidth=3, foreground="white")]
    for line in picture.lines:
        ends = [line.one.x, line.other.x], [line.one.y, line.other.y]
        if line.width:
            axes.plot(*ends, zorder=1, color=_BLUE, linewidth=line.width)
        else:
            axes.plot(*ends, zorder=1, color=_GREY, linestyle="--")
        axes.text(*line.spot, line.label, ha="center", va="center", fontsize=9, zorder=3, path_effects=halo)
    dots = picture.dots
    size = 420 if dots[0].is_labelled else 30
    axes.scatter([dot.x for dot in dots], [dot.y for dot in dots], s=size, color=_INK, zorder=2)
    for dot in dots:
        if dot.is_labelled:
            axes.text(dot.x, dot.y, dot.name, ha="center", va="center", fontsize=8, color="white", zorder=4)
    axes.set_title(picture.title)
    axes.invert_yaxis()  # as in SVG, down is more
    axes.set_axis_off()
    figure.savefig(path, dpi=100)
