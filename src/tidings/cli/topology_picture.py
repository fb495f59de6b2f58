"""Draw the topology of a simulated overlay: brokers, and links as wide as their traffic.

SVG is written here; PNG needs matplotlib.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import rustworkx as rx

from tidings.model.errors import InvalidValueError, MissingPackageError
from tidings.model.packages import installation
from tidings.simulation.scenario import ScenarioOutcome

FORMATS = (".svg", ".png")
_SIZE, _MARGIN, _HEAD = 800, 50, 40  # pixels
_WIDEST, _THINNEST = 14.0, 1.0
_MANY = 60  # with more brokers than this, names and numbers are left out, since they would hide the picture
_BLUE, _GREY, _INK = "#1f77b4", "#b8c4cf", "#222222"


class PictureNode(NamedTuple):
    """A broker at its position in the picture."""

    name: str
    x: float
    y: float
    is_labelled: bool


class PictureEdge(NamedTuple):
    """A link between two brokers; a width of 0 means that it had no traffic, and it is drawn grey and dashed."""

    one: PictureNode
    other: PictureNode
    width: float
    label: str

    @property
    def label_position(self) -> tuple[float, float]:
        """The position of the label: off the middle, where links often cross."""
        return 0.6 * self.one.x + 0.4 * self.other.x, 0.6 * self.one.y + 0.4 * self.other.y


class TopologyPicture(NamedTuple):
    """The drawing of an overlay before it is written as SVG or PNG."""

    title: str
    nodes: list[PictureNode]
    edges: list[PictureEdge]


def check_picture_path(path: Path) -> Path:
    """Return `path`, after checking that a picture can be written there in the format of its suffix.

    Called before the simulation runs. Raises InvalidValueError for another suffix or a missing folder, and
    MissingPackageError for PNG without matplotlib.
    """
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


def draw(outcome: ScenarioOutcome, path: Path) -> None:
    """Write the topology of a simulation's outcome, with the traffic of each link, as SVG or PNG."""
    picture = lay_out(outcome)
    if path.suffix.lower() == ".svg":
        path.write_text("\n".join(_svg(picture)) + "\n", "utf-8")
    else:
        _write_png(picture, path)


def lay_out(outcome: ScenarioOutcome) -> TopologyPicture:
    """Lay out the topology of a simulation's outcome: linked brokers near each other, the busiest link the widest."""
    names = list(outcome.tables)
    numbers = {name: number for number, name in enumerate(names)}
    graph: rx.PyGraph[str, int] = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(names)
    graph.add_edges_from([(numbers[link.one], numbers[link.other], 1) for link in outcome.links])
    layout = rx.spring_layout(graph, seed=1, num_iter=200) if outcome.links else rx.circular_layout(graph)
    positions = _scale_to_picture(
        [(float(layout[number][0]), float(layout[number][1])) for number in range(len(names))]
    )
    is_labelled = len(names) <= _MANY
    nodes = {name: PictureNode(name, x, y, is_labelled) for name, (x, y) in zip(names, positions, strict=True)}
    most = max((link.messages for link in outcome.links), default=0)
    edges = [
        PictureEdge(
            nodes[link.one],
            nodes[link.other],
            _THINNEST + (_WIDEST - _THINNEST) * link.messages / most if link.messages else 0.0,
            f"{link.messages:,}" if is_labelled and link.messages else "",
        )
        for link in outcome.links
    ]
    title = f"{outcome.strategy}, seed {outcome.seed}: messages per link, {outcome.published:,} events published"
    return TopologyPicture(title, list(nodes.values()), edges)


def _scale_to_picture(positions: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Scale the positions to the size of the picture, each axis separately; a single broker is put into the middle."""
    scaled = []
    for values in zip(*positions, strict=True):
        low, span = min(values), max(values) - min(values)
        extent = _SIZE - 2 * _MARGIN
        scaled.append([_MARGIN + extent * ((value - low) / span if span else 0.5) for value in values])
    return list(zip(*scaled, strict=True))


def _svg(picture: TopologyPicture) -> Iterator[str]:
    height = _SIZE + _HEAD
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SIZE}" height="{height}" viewBox="0 0 {_SIZE} {height}" '
        'font-family="sans-serif">'
    )
    yield f'<rect width="{_SIZE}" height="{height}" fill="white"/>'
    yield f'<text x="{_MARGIN}" y="26" font-size="16" fill="{_INK}">{escape(picture.title)}</text>'
    yield f'<g transform="translate(0 {_HEAD})">'
    for one, other, width, _ in picture.edges:
        stroke = f'stroke="{_BLUE}" stroke-width="{width:.1f}"' if width else f'stroke="{_GREY}" stroke-dasharray="4"'
        yield f'<line x1="{one.x:.1f}" y1="{one.y:.1f}" x2="{other.x:.1f}" y2="{other.y:.1f}" {stroke}/>'
    for node in picture.nodes:
        yield f'<circle cx="{node.x:.1f}" cy="{node.y:.1f}" r="{16 if node.is_labelled else 4}" fill="{_INK}"/>'
        if node.is_labelled:
            yield _svg_text(node.x, node.y + 4, 11, "white", node.name)
    for edge in picture.edges:
        if edge.label:
            yield _svg_text(edge.label_position[0], edge.label_position[1] + 4, 12, _INK, edge.label)
    yield "</g></svg>"


def _svg_text(x: float, y: float, size: int, colour: str, text: str) -> str:
    halo = 'stroke="white" stroke-width="3" paint-order="stroke" ' if colour != "white" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="middle" {halo}fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _write_png(picture: TopologyPicture, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke

    figure = Figure(figsize=(8, 8.4), layout="constrained")
    axes = figure.add_subplot()
    halo = [withStroke(linewidth=3, foreground="white")]
    for edge in picture.edges:
        ends = [edge.one.x, edge.other.x], [edge.one.y, edge.other.y]
        if edge.width:
            axes.plot(*ends, zorder=1, color=_BLUE, linewidth=edge.width)
        else:
            axes.plot(*ends, zorder=1, color=_GREY, linestyle="--")
        axes.text(*edge.label_position, edge.label, ha="center", va="center", fontsize=9, zorder=3, path_effects=halo)
    nodes = picture.nodes
    size = 420 if nodes[0].is_labelled else 30
    axes.scatter([node.x for node in nodes], [node.y for node in nodes], s=size, color=_INK, zorder=2)
    for node in nodes:
        if node.is_labelled:
            axes.text(node.x, node.y, node.name, ha="center", va="center", fontsize=8, color="white", zorder=4)
    axes.set_title(picture.title)
    axes.invert_yaxis()  # as in SVG, y grows downwards
    axes.set_axis_off()
    figure.savefig(path, dpi=100)
