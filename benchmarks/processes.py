"""Processor time and memory of this process and all its descendants, from Linux's /proc."""

import os
from pathlib import Path

_PROC = Path("/proc")


def processor() -> float:
    """Return the seconds of processor time of this process and its descendants, including children that have ended."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(sum(map(int, fields[11:15])) / ticks for fields in _family().values())


def memory() -> int:
    """Return the bytes of memory of this process and its descendants; shared pages, such as a mapped file, count
    once."""
    return sum(_memory_bytes(number, "Pss:") for number in _family())


def resident(process: int) -> int:
    """Return the bytes of resident memory of one process."""
    return _memory_bytes(process, "Rss:")


def _memory_bytes(process: int, which: str) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:  # the process has just ended
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(which))


def _family() -> dict[int, list[str]]:
    """Return the fields of `/proc/PID/stat`, from the state on, of this process and all its descendants, by process
    id."""
    processes = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            processes[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has just ended
            continue
    family: dict[int, list[str]] = {}
    generation = {os.getpid()}
    while generation:
        family |= {number: processes[number] for number in generation if number in processes}
        generation = {child for child, fields in processes.items() if int(fields[1]) in generation}
    return family
