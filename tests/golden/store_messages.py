"""Messages of the store's protocol for its fuzz target (make_malformed.py)."""

import struct


def store_messages(add):
    """What clients of a TCPStore send, after their greeting."""

    def number(n):
        return struct.pack("<Q", n)

    def text(t):
        return number(len(t)) + t

    def two(code):
        return bytes([code]) + number(2) + text(b"/a")

    a, b = text(b"/a"), text(b"/b")
    add("store", "set_get.bin", b"\x01" + a + text(b"v") + b"\x03" + a)
    add("store", "add_barrier.bin", b"\x04" + a + number(5) + 2 * (b"\x12" + b + number(2)))
    add("store", "wait_cancel.bin", two(6) + b + b"\x0c\x05" + number(1) + a)
    add("store", "queues.bin", b"\x0e" + a + text(b"1") + b"\x10" + a + 2 * (b"\x0f" + a))
    several = two(11) + text(b"1") + b + text(b"2") + two(10) + b + b"\x07\x11\x08" + a + b"\x09" + b + text(b"x")
    add("store", "several.bin", several + b"\x02" + b + text(b"2x") + text(b"3") + b"\x0dabcd")
