"""Draw measurements as charts with matplotlib."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidings.cli.measurement import number


def bars(values: Mapping[str, float], label: str, path: Path) -> None:
    """Draw a horizontal bar chart on a logarithmic axis, the longest bar on top; bars of Tidings are blue.

    Args:
        values: The value of each bar by its name.
        label: The label of the axis.
        path: The file to write.
    """
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(values) + 1.2), layout="constrained")
    names = sorted(values, key=lambda name: values[name])
    colours = ["tab:blue" if name.startswith("tidings") else "tab:gray" for name in names]
    containers = axes.barh(names, [values[name] for name in names], color=colours)
    axes.bar_label(containers, [number(values[name]) for name in names], padding=3)
    axes.set_xscale("log")
    axes.set_xlim(min(values.values()) / 3, max(values.values()) * 6)
    figure.supxlabel(label, fontsize="medium")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def curve(points: Mapping[int, float], across: str, up: str, path: Path) -> None:
    """Draw points joined by lines on logarithmic axes, with a dotted line that grows in proportion to x for comparison.

    Args:
        points: The values of y by x.
        across: The label of the x axis.
        up: The label of the y axis.
        path: The file to write.
    """
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    sizes = sorted(points)
    axes.plot(sizes, [points[size] for size in sizes], "o-", color="tab:blue", label="tidings")
    first = points[sizes[0]] / sizes[0]
    axes.plot(sizes, [first * size for size in sizes], ":", color="tab:gray", label="in proportion")
    for size in sizes:
        axes.annotate(number(points[size]), (size, points[size]), xytext=(4, -12), textcoords="offset points")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(0.12)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def lines(each: Mapping[str, Mapping[int, float]], across: str, up: str, path: Path) -> None:
    """Draw one line per name, each with a dotted horizontal line at its first value for comparison.

    Args:
        each: The values of y by x, by the name of the line.
        across: The label of the x axis.
        up: The label of the y axis.
        path: The file to write.
    """
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, points in each.items():
        plotted = axes.plot(list(points), list(points.values()), "o-", markersize=3, label=name)
        axes.axhline(next(iter(points.values())), linestyle=":", color=plotted[0].get_color())
    axes.set_ylim(bottom=0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def panels(
    each: Mapping[str, Mapping[str, Mapping[float, float]]],
    across: str,
    up: str,
    caption: str,
    path: Path,
    *,
    logarithmic: bool = True,
) -> None:
    """Draw one panel per title, two side by side, each with one line per name.

    Args:
        each: The values of y by x, by the name of the line, by the title of the panel.
        across: The label of the x axis.
        up: The label of the y axis.
        caption: The text below the panels.
        path: The file to write.
        logarithmic: Use a logarithmic x axis with a tick at each point.
    """
    plt = _pyplot()
    rows = -(-len(each) // 2)
    size = (10, 3.2 * rows + 0.8)
    figure, grid = plt.subplots(rows, 2, figsize=size, sharex=True, squeeze=False, layout="constrained")
    for (title, lines), axes in zip(each.items(), grid.flat, strict=False):
        for name, points in lines.items():
            axes.plot(list(points), list(points.values()), "o-", markersize=3, label=name)
        if logarithmic:
            ticks = sorted({x for points in lines.values() for x in points})
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
            axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize="medium")
        axes.legend()
    figure.supylabel(up, fontsize="medium")
    figure.supxlabel(f"{across}\n{textwrap.fill(caption, 130)}", fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
