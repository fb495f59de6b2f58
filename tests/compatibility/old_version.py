"""Brokers of a released version as processes: its wheel, unpacked, with the libraries that are installed here."""

import os
import sys
import zipfile
from pathlib import Path

from tests.compatibility.release import Release
from tidings.cli.overlay import LocalOverlay
from tidings.cli.overlay.broker_process import ChildBroker
from tidings.simulation.topologies import Topology

# The matching kernels of a wheel would have to be compiled first, which takes more than a minute of processor time.
# A broker with a handful of subscriptions does as well with the matcher that all others are compared with. This
# replaces a name within a released version, which does not change any more.
PROGRAMS = {
    "0.1.0": """
import sys
from tidings.engine import book
from tidings.engine.matcher import NaiveMatcher
book.FastMatcher = NaiveMatcher
import tidings.cli
tidings.cli.main()
""",
}


def unpack_wheel(release: Release, folder: Path) -> Path:
    """A folder for `PYTHONPATH` from which `import tidings` gives the released version."""
    with zipfile.ZipFile(release.wheel) as wheel:
        wheel.extractall(folder)
    return folder


class OldBroker(ChildBroker):
    """A broker of a released version; `packages` is the folder of its unpacked wheel."""

    def __init__(self, release: Release, packages: Path, name: str, configuration: Path, log: Path) -> None:
        super().__init__(name, configuration, log)
        self._release, self._packages = release, packages

    @property
    def program(self) -> list[str]:
        return [sys.executable, "-c", PROGRAMS[self._release.version]]

    def environment(self) -> dict[str, str]:
        present = super().environment()
        return {**present, "PYTHONPATH": os.pathsep.join((str(self._packages), present["PYTHONPATH"]))}


class MixedOverlay(LocalOverlay):
    """An overlay in which some brokers, by their names, are of a released version; `upgrade` ends that."""

    def __init__(self, topology: Topology, folder: Path, release: Release, packages: Path, old: set[str]) -> None:
        super().__init__(topology, folder, http=True)
        self._release, self._packages, self._old = release, packages, old

    def _write(self) -> None:
        super()._write()
        for name in self._old:
            made = self.children[name]
            old = OldBroker(self._release, self._packages, name, made.configuration, made.log)
            old.address = made.address
            self.children[name] = old

    def upgrade(self, name: str) -> None:
        """Stops a broker of the released version, and starts one of the present version in its place."""
        old = self.children[name]
        old.ask_to_stop()
        assert old.await_end(60) == 0
        self.children[name] = ChildBroker(name, old.configuration, old.log)
        self.restart(name)
