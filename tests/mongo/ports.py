"""Reserves a port while no server listens on it."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def reserve_port() -> socket.socket:
    """Return a socket that reserves a free port of ``HOST`` until it is closed.

    A server can start on the port several times. The socket itself never listens, so connections are refused while no
    server runs. Without the reservation, another process could get the port between two starts of the server. A client
    that retries could also be connected to itself.
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
