"""Messages between the referee, the zygote and the runners: one JSON object a packet, file descriptors beside it.

What a runner sends is untrusted: it is JSON of bounded size, never pickle, and nothing in it can make a verdict better.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from json import dumps, loads
from typing import Any

MAX_PACKET = 128 * 1024
"""Bytes. Sequenced packets arrive whole or not at all; a longer one is cut by the kernel and then fails to parse."""
MAX_FDS = 64


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelTimeout(Exception):
    """The other side did not answer in time."""


class Channel:
    """One end of a sequenced-packet socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @staticmethod
    def pair() -> tuple[Channel, socket.socket]:
        """Our end as a channel, and the raw socket to hand to the other process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(ours), theirs

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one object. Raises ChannelClosed when nobody reads any more."""
        data = dumps(message).encode()
        if len(data) > MAX_PACKET:
            raise ValueError(f"message of {len(data)} bytes exceeds the packet limit of {MAX_PACKET}")
        try:
            if fds:
                socket.send_fds(self.sock, [data], list(fds))
            else:
                self.sock.send(data)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Wait for one object and its descriptors. Raises ChannelTimeout, or ChannelClosed at the end of the stream."""
        self.sock.settimeout(timeout_s)
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, MAX_PACKET, MAX_FDS)
        except TimeoutError as error:
            raise ChannelTimeout(f"no answer in {timeout_s:g} s") from error
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("end of stream")
        try:
            message = loads(data)
        except ValueError as error:
            raise ChannelClosed(f"a packet that is no JSON: {error}") from error
        if not isinstance(message, dict):
            raise ChannelClosed("a packet that is no object")
        return message, fds

    def close(self) -> None:
        """Close our end."""
        with contextlib.suppress(OSError):
            self.sock.close()
