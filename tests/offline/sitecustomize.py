"""No connection but to this machine itself: Python imports this module when it starts.

``tests/conftest.py`` puts its folder on the path of every process that tests start, and imports it
too. What was tried is in ``tried``.
"""

import errno
import ipaddress
import os
import socket
from typing import Any

tried: list[str] = []  # addresses beyond this machine
_connect = socket.socket.connect
_connect_ex = socket.socket.connect_ex
_sendto = socket.socket.sendto
_getaddrinfo = socket.getaddrinfo


def _check(host: Any) -> None:
    """Refuse an address that is not this machine's own."""
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost") or is_loopback(str(name)):
        return
    tried.append(str(name))
    raise OSError(errno.ENETUNREACH, f"tests do not connect to {name}")


def is_loopback(host: str) -> bool:
    """Return True for an address of this machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_internet(this: socket.socket) -> bool:
    return this.family in (socket.AF_INET, socket.AF_INET6)


def connect(this: socket.socket, address: Any) -> None:
    """Connect to this machine."""
    if _is_internet(this):
        _check(address[0])
    _connect(this, address)


def connect_ex(this: socket.socket, address: Any) -> int:
    """Connect to this machine."""
    if _is_internet(this):
        _check(address[0])
    return _connect_ex(this, address)


def sendto(this: socket.socket, data: Any, *rest: Any) -> int:
    """Send to this machine."""
    if _is_internet(this):
        _check(rest[-1][0])
    return _sendto(this, data, *rest)


def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
    """Look up names of this machine; others would be asked from a server."""
    _check(host)
    return _getaddrinfo(host, *rest, **options)


def block() -> None:
    """Refuse connections from now on."""
    socket.socket.connect = connect  # type: ignore[method-assign,assignment]
    socket.socket.connect_ex = connect_ex  # type: ignore[method-assign,assignment]
    socket.socket.sendto = sendto  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = getaddrinfo


if os.environ.get("TAGMASK_TESTS_OFFLINE"):
    block()
