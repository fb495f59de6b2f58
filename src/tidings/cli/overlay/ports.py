"""Ports for brokers of a local overlay."""

import secrets
import socket
from pathlib import Path

from tidings.model.errors import TidingsError

HOST = "127.0.0.1"
_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 1_000


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that the system does not give to outgoing connections.

    A broker that is killed and started again finds its port as it was: somebody who calls it meanwhile could otherwise
    be given just that port, and be answered by itself.
    """
    chance, highest = secrets.SystemRandom(), _first_of_outgoing()
    found: dict[int, None] = {}
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            return list(found)
        port = chance.randrange(_LOWEST, highest)
        if is_free(port):
            found[port] = None
    raise TidingsError(f"there are no {count:,} free ports on {HOST} from {_LOWEST:,} to {highest:,}")


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
    return True


def _first_of_outgoing() -> int:
    try:
        return max(int(_RANGE.read_text().split()[0]), _LOWEST + 1_000)
    except (OSError, ValueError, IndexError):
        return 32_768
