#!/usr/bin/env python3
"""Kernel TCP as a peer of Ironwarp's TCP: drives the services of the example `tcp_peer`.

Usage: kernel_peer.py [--brief] PEER OWN

PEER is the address of tcp_peer, OWN the kernel's, where tcp_peer connects to port 7007 by itself.
tcp_peer offers echo (port 7), discard (9), daytime (13: one short line, then it closes first) and
chargen (19: the pattern of `pattern()` until the peer closes), as RFC 862, 863, 867 and 864 have
them; on port 11 it does as chargen, and resets the connection at the first octet from the kernel.
Prints a line for each test, and ends with 1 if any failed. --brief leaves out those that do not depend
on what the handshake agreed on, and sends less, so that a capture stays small.
"""

import hashlib
import os
import select
import socket
import struct
import sys
import threading
import time

ECHO, DISCARD, RESET, DAYTIME, CHARGEN, ACTIVE = 7, 9, 11, 13, 19, 7007
TIMEOUT = 60
BULK = 32 << 20


def pattern(offset, length):
    """What chargen sends: octet i of the stream is i mod 251."""
    start = offset % 251
    return (bytes(range(251)) * (length // 251 + 2))[start:start + length]


def connect(port, receive_buffer=None):
    family = socket.AF_INET6 if ":" in PEER else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(TIMEOUT)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect((PEER, port))
    return sock


def receive_all(sock):
    """Octets until the peer's FIN: their number and digest."""
    digest, count = hashlib.sha256(), 0
    while data := sock.recv(1 << 18):
        digest.update(data)
        count += len(data)
    return count, digest.digest()


def receive_exactly(sock, length):
    parts = []
    while length:
        data = sock.recv(min(length, 1 << 18))
        if not data:
            raise AssertionError(f"the peer closed with {length} octets missing")
        parts.append(data)
        length -= len(data)
    return b"".join(parts)


def exchange(sock, data):
    """Sends all of it while reading the echo; then half-closes and expects the peer's FIN."""
    result = {}

    def read():
        result["got"] = receive_all(sock)

    reader = threading.Thread(target=read)
    reader.start()
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    reader.join(TIMEOUT)
    assert not reader.is_alive(), "the echo did not end"
    assert result.get("got") == (len(data), hashlib.sha256(data).digest()), "the echo differs"


def test_bulk_both_ways():
    with connect(ECHO) as sock:
        exchange(sock, os.urandom(BULK))


def test_bulk_towards_the_kernel():
    with connect(CHARGEN) as sock:
        count = 0
        while count < BULK:
            data = sock.recv(1 << 18)
            assert data and data == pattern(count, len(data)), f"wrong octets after {count}"
            count += len(data)


def test_bulk_from_the_kernel():
    with connect(DISCARD) as sock:
        sock.sendall(os.urandom(BULK))
        sock.shutdown(socket.SHUT_WR)
        assert receive_all(sock)[0] == 0


def test_small_pieces():
    with connect(ECHO) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for length in list(range(1, 65)) * 4:
            data = os.urandom(length)
            sock.sendall(data)
            assert receive_exactly(sock, length) == data


def test_thousands_of_short_connections():
    for number in range(2000):
        with connect(ECHO) as sock:
            exchange(sock, b"connection %d" % number)


def test_many_at_once():
    socks = [connect(ECHO) for _ in range(64)]
    for number, sock in enumerate(socks):
        sock.sendall(b"%d" % number * 1000)
    for number, sock in enumerate(socks):
        sock.shutdown(socket.SHUT_WR)
        data = b"%d" % number * 1000
        assert receive_all(sock) == (len(data), hashlib.sha256(data).digest())
        sock.close()


def test_peer_closes_first():
    for _ in range(100):
        with connect(DAYTIME) as sock:
            assert 0 < receive_all(sock)[0] < 100


def test_both_half_closed():
    """The peer's data goes on after our FIN."""
    with connect(ECHO, receive_buffer=4096) as sock:
        sock.settimeout(TIMEOUT)
        data = os.urandom(100_000)
        sent = threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
        sent.start()
        time.sleep(0.5)
        assert receive_all(sock) == (len(data), hashlib.sha256(data).digest())
        sent.join()


def test_reset_by_the_kernel():
    for _ in range(50):
        sock = connect(CHARGEN)
        sock.recv(1000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()  # sends RST
    with connect(ECHO) as sock:  # the peer is well
        exchange(sock, b"after the resets")


def test_reset_by_the_peer():
    for number in range(50):
        with connect(RESET) as sock:
            data = receive_exactly(sock, 1 + 10_000 * (number % 4))
            assert data == pattern(0, len(data))
            sock.sendall(b"enough")
            try:
                while sock.recv(1 << 18):
                    pass
            except ConnectionResetError:
                continue
            raise AssertionError("the peer closed in order")


def test_closed_port_is_refused():
    try:
        connect(4).close()
    except ConnectionRefusedError:
        return
    raise AssertionError("no RST from a closed port")


def test_zero_window_of_the_kernel():
    with connect(CHARGEN, receive_buffer=8192) as sock:
        time.sleep(3)  # the window is full at once; the peer probes
        data = receive_exactly(sock, 4 << 20)
        assert data == pattern(0, len(data))


def test_zero_window_of_the_peer():
    """An echo that cannot send takes no more: its window closes, and opens again."""
    with connect(ECHO, receive_buffer=8192) as sock:
        sock.setblocking(False)
        sent = 0
        chunk = bytes(1 << 16)
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < 2:
            if select.select([], [sock], [], 0.2)[1]:
                sent += sock.send(chunk)
                idle_since = time.monotonic()
            assert sent < 1 << 30, "the peer buffers without limit"
        sock.settimeout(TIMEOUT)
        sock.shutdown(socket.SHUT_WR)
        assert receive_all(sock)[0] == sent


def test_active_open_of_the_peer():
    """tcp_peer connects to us, again and again, and echoes."""
    family = socket.AF_INET6 if ":" in OWN else socket.AF_INET
    with socket.create_server((OWN, ACTIVE), family=family) as listener:
        listener.settimeout(TIMEOUT)
        for number in range(5):
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(TIMEOUT)
                exchange(sock, os.urandom(1 << 20) if number % 2 else b"short")


BRIEF = (test_bulk_both_ways, test_bulk_towards_the_kernel, test_bulk_from_the_kernel, test_small_pieces,
         test_peer_closes_first, test_both_half_closed, test_reset_by_the_kernel, test_reset_by_the_peer,
         test_zero_window_of_the_kernel)


def main(brief):
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or brief and test not in BRIEF:
            continue
        name = name[5:].replace("_", " ")
        began = time.monotonic()
        try:
            test()
            print(f"  passed  {time.monotonic() - began:5.1f} s  {name}", flush=True)
        except (AssertionError, OSError) as error:
            failed += 1
            print(f"  FAILED  {time.monotonic() - began:5.1f} s  {name}: {error!r}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    brief = arguments[:1] == ["--brief"]
    if len(arguments) != 2 + brief:
        sys.exit(__doc__)
    PEER, OWN = arguments[brief:]
    if brief:
        BULK = 2 << 20
    main(brief)
