"""WAV files for their fuzz target (make_malformed.py)."""

import math
import struct


def wav(tag, bits, channels, data, extra=b"", chunks=b""):
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", tag, channels, 24000, 24000 * block, block, bits) + extra
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head + chunks + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def wav_files(add):
    """Sound of every kind that is read, for its fuzz target."""
    guid = bytes.fromhex("000000001000800000aa00389b71")
    add("wav", "pcm16.wav", wav(1, 16, 2, struct.pack("<6h", 1, -2, 3, 32767, -32768, 0)))
    add("wav", "pcm8.wav", wav(1, 8, 1, bytes([0, 128, 255]) + b"\0", chunks=b"LIST\3\0\0\0abc\0"))
    more = struct.pack("<HHIH", 22, 24, 7, 1) + guid
    add("wav", "pcm24.wav", wav(0xFFFE, 24, 3, bytes(range(18)), more))
    add("wav", "float.wav", wav(3, 32, 1, struct.pack("<2f", 0.5, math.nan), b"\0\0", b"fact\4\0\0\0\2\0\0\0"))
    add("wav", "double.wav", wav(3, 64, 1, struct.pack("<d", -1.5)))
