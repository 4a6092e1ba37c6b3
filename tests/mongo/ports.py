"""Reserves a port while no server listens on it."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def reserve_port() -> socket.socket:
    """A socket bound to a free port of ``HOST``, on which a server may listen again and again until it is closed.

    The socket never listens itself, so that connections are refused while no server does. Without it another process
    could be given the port between two starts, or a client that tries again and again be connected to itself.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((HOST, 0))
    return reservation


def port_of(reservation: socket.socket) -> int:
    """Return the port of ``reservation``."""
    port = reservation.getsockname()[1]
    assert isinstance(port, int)
    return port
