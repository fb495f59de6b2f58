"""Packages that a benchmark compares Tidings with, as far as they are installed."""

from importlib import import_module

from tidings.cli.terminal import err
from tidings.model.packages import installation


def is_installed(package: str) -> bool:
    """Whether a package can be compared with. Without it the benchmark goes on, and a line says what to install."""
    try:
        import_module(package)
    except ImportError:
        told = f"tidings: {package} is not installed, and is left out of the comparison: {installation(package)}"
        err.print(told, markup=False, soft_wrap=True)
        return False
    return True
