#!/usr/bin/env python3
"""Judges a capture of TCP between Ironwarp and another host.

Usage: check_tcp.py [--corrupted] [--expect NAME]... OWN FILE.pcap

OWN is Ironwarp's address. Checksums of both sides must be good (with --corrupted only ours), data
that are sent again must be the same octets, and of Ironwarp's segments also: data within the window that
was offered (a window probe may exceed it by an octet), acknowledgments and SACK blocks of nothing that
was not sent, blocks not empty. Each NAME must have been seen: retransmission (of ours), sack (from
us), sacked (to us), zero-window (to us), timestamps, no-timestamps, ecn, no-ecn.
Prints one line, and ends with 1 if anything is wrong.
"""

import ipaddress
import struct
import sys
from collections import Counter

FIN, SYN, RST, ACK, ECE, CWR = 1, 2, 4, 16, 64, 128


def packets(file):
    """Octets of each frame of a classic pcap file of Ethernet."""
    head = file.read(24)
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}[head[:4]]
    while len(head := file.read(16)) == 16:
        captured, length = struct.unpack(order + "8x2I", head)
        octets = file.read(captured)
        if captured == length:
            yield octets


def checksum(octets):
    """The Internet checksum's sum, folded: 0xffff when the checksum in it is good."""
    if len(octets) % 2:
        octets += b"\0"
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def segment(frame):
    """Source, destination, good checksums, and the TCP segment; None for anything else."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        header = (frame[14] & 15) * 4
        length = struct.unpack(">H", frame[16:18])[0]
        if frame[23] != 6:
            return None
        source, destination, good = frame[26:30], frame[30:34], checksum(frame[14:14 + header]) == 0xffff
        tcp = frame[14 + header:14 + length]
    elif kind == b"\x86\xdd" and frame[20] == 6:
        source, destination, good = frame[22:38], frame[38:54], True
        tcp = frame[54:54 + struct.unpack(">H", frame[18:20])[0]]
    else:
        return None
    pseudo = source + destination + struct.pack(">II", len(tcp), 6)
    return source, destination, good and len(tcp) >= 20 and checksum(pseudo + tcp) == 0xffff, tcp


def options(octets):
    """Options by kind."""
    found, at = {}, 0
    while at < len(octets) and octets[at]:
        if octets[at] == 1:
            at += 1
            continue
        length = octets[at + 1] if at + 1 < len(octets) else 0
        if length < 2:
            break
        found[octets[at]] = octets[at + 2:at + length]
        at += length
    return found


class Side:
    """What one side of a connection has sent, from its SYN on."""

    def __init__(self):
        self.isn = None
        self.octets = bytearray()
        self.known = []  # (start, end) of octets, relative to ISN + 1, sorted and apart
        self.sent_to = 0
        self.ack = 0
        self.edge = None
        self.scale = None
        self.offers = {}

    def at(self, number):
        """A sequence number of this side as an offset in its stream; the SYN is at -1."""
        offset = (number - self.isn - 1) & 0xffffffff
        base = max(self.sent_to, 0)
        return base + ((offset - base + (1 << 31)) & 0xffffffff) - (1 << 31)


class Judge:
    def __init__(self, own, corrupted):
        self.own, self.corrupted = own, corrupted
        self.connections, self.seen, self.problems = {}, Counter(), []
        self.number = 0

    def bad(self, what):
        self.problems.append(f"  frame {self.number}: {what}")

    def frame(self, octets):
        self.number += 1
        parsed = segment(octets)
        if parsed is None:
            return
        source, destination, good, tcp = parsed
        ours = source == self.own
        self.seen["segments"] += 1
        if not good:
            self.seen["bad checksums"] += 1
            if ours or not self.corrupted:
                self.bad(f"checksum of {'ours' if ours else 'theirs'}")
            return
        ports = struct.unpack(">HH", tcp[:4])
        key = (destination, ports[0], ports[1]) if ours else (source, ports[1], ports[0])
        flags = tcp[13]
        if flags & (SYN | ACK) == SYN:
            pair = self.connections.get(key)
            seq = struct.unpack(">I", tcp[4:8])[0]
            if pair is None or pair[not ours].isn != seq:
                self.connections[key] = (Side(), Side())
        if key in self.connections:
            pair = self.connections[key]
            sender, receiver = (pair[0], pair[1]) if ours else (pair[1], pair[0])
            self.judge(ours, sender, receiver, flags, tcp)

    def judge(self, ours, sender, receiver, flags, tcp):
        seq, ack = struct.unpack(">II", tcp[4:12])
        window = struct.unpack(">H", tcp[14:16])[0]
        header = (tcp[12] >> 4) * 4
        found, payload = options(tcp[20:header]), tcp[header:]
        if flags & SYN:
            sender.isn = seq
            sender.offers = found
            sender.scale = found[3][0] if 3 in found else None
            sender.ecn = bool(flags & ECE)
        elif flags & RST or sender.isn is None or receiver.isn is None:
            return
        else:
            self.agreed(sender, receiver)
        if flags & ACK and receiver.isn is not None:
            self.acknowledgment(ours, sender, receiver, flags, ack, window, found)
        if payload and not flags & SYN:
            self.data(ours, sender, receiver, sender.at(seq), payload)

    def agreed(self, sender, receiver):
        stamps = 8 in sender.offers and 8 in receiver.offers
        self.seen["timestamps" if stamps else "no-timestamps"] += 1
        self.seen["ecn" if sender.ecn and receiver.ecn else "no-ecn"] += 1

    def acknowledgment(self, ours, sender, receiver, flags, ack, window, found):
        scaled = sender.scale is not None and receiver.scale is not None and not flags & SYN
        offset = receiver.at(ack)
        if ours and offset > receiver.sent_to + 1:
            self.bad(f"acknowledges {offset}, sent were {receiver.sent_to}")
        sender.ack = max(sender.ack, offset)
        edge = offset + (window << (sender.scale if scaled else 0))
        sender.edge = edge if sender.edge is None else max(sender.edge, edge)
        if window == 0 and not ours:
            self.seen["zero-window"] += 1
        blocks = found.get(5, b"")
        if blocks:
            self.seen["sack" if ours else "sacked"] += 1
        for index in range(0, len(blocks) // 8 * 8, 8):
            start, end = (receiver.at(edge) for edge in struct.unpack(">II", blocks[index:index + 8]))
            duplicate = index == 0 and start < offset
            if ours and not (start < end <= receiver.sent_to + 1 and (duplicate or start > offset)):
                self.bad(f"SACK block {start}..{end} with {offset} acknowledged, {receiver.sent_to} sent")

    def data(self, ours, sender, receiver, start, payload):
        end = start + len(payload)
        if ours and receiver.edge is not None and end > receiver.edge + 1:
            self.bad(f"data up to {end}, the window ends at {receiver.edge}")
        if start < 0:
            return
        again = False
        for low, high in sender.known:
            overlap = max(low, start), min(high, end)
            if overlap[0] < overlap[1]:
                again = True
                if sender.octets[overlap[0]:overlap[1]] != payload[overlap[0] - start:overlap[1] - start]:
                    self.bad(f"other octets at {overlap[0]} than before")
        if again:
            self.seen["retransmission" if ours else "retransmitted"] += 1
        if len(sender.octets) < end:
            sender.octets.extend(bytes(end - len(sender.octets)))
        sender.octets[start:end] = payload
        sender.known = merged(sender.known, start, end)
        sender.sent_to = max(sender.sent_to, end)


def merged(ranges, start, end):
    """Ranges with one more; those that touch become one."""
    if ranges and ranges[-1][1] == start:
        return ranges[:-1] + [(ranges[-1][0], end)]
    apart = [(low, high) for low, high in ranges if high < start or low > end]
    joined = [(low, high) for low, high in ranges if not (high < start or low > end)]
    low = min([start] + [low for low, _ in joined])
    high = max([end] + [high for _, high in joined])
    return sorted(apart + [(low, high)])


def main(arguments):
    corrupted, expected = False, []
    while arguments and arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option == "--corrupted":
            corrupted = True
        elif option == "--expect" and arguments:
            expected.append(arguments.pop(0))
        else:
            sys.exit(__doc__)
    if len(arguments) != 2:
        sys.exit(__doc__)
    judge = Judge(ipaddress.ip_address(arguments[0]).packed, corrupted)
    with open(arguments[1], "rb") as file:
        for octets in packets(file):
            judge.frame(octets)
    for name in expected:
        if not judge.seen[name]:
            judge.problems.append(f"  no {name}")
    if not judge.connections:
        judge.problems.append("  no connection")
    counts = ", ".join(f"{count} {name}" for name, count in sorted(judge.seen.items()))
    name = arguments[1].rsplit("/", 1)[-1]
    print(f"{name}: {len(judge.connections)} connections, {counts}, {len(judge.problems)} problems")
    print("\n".join(judge.problems[:5]), end="\n" if judge.problems else "")
    sys.exit(bool(judge.problems))


if __name__ == "__main__":
    main(sys.argv[1:])
