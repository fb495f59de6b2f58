"""Check for the optional packages that benchmarks compare Tidings with."""

from importlib import import_module

from tidings.cli.output import err
from tidings.model.packages import installation


def is_installed(package: str) -> bool:
    """Return whether a package is installed. If not, print how to install it; the benchmark continues without it."""
    try:
        import_module(package)
    except ImportError:
        message = f"tidings: {package} is not installed, and is left out of the comparison: {installation(package)}"
        err.print(message, markup=False, soft_wrap=True)
        return False
    return True
