"""GGUF files of tensors, for tests: as programs of language models write them, without what describes the model."""

import struct

import numpy as np


def blocks_of(values):
    """(Q8_0's bytes, the numbers that they stand for) of float32 [..., 32 n]."""
    rows = values.reshape(-1, 32)
    scale = (np.abs(rows).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.round(rows / scale.astype(np.float32)).astype(np.int8)
    data = np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], 1)
    return data.tobytes(), (codes * scale.astype(np.float32)).reshape(values.shape)


def save_gguf(tensors, path):
    """Matrices whose rows are whole blocks in Q8_0, the others in float32. Returns what they are read as."""
    names, data, read = b"", b"", {}
    for name, t in tensors.items():
        values = np.ascontiguousarray(t.numpy())
        in_blocks = values.ndim == 2 and values.shape[1] % 32 == 0
        raw, read[name] = blocks_of(values) if in_blocks else (values.tobytes(), values)
        names += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", values.ndim)
        names += struct.pack(f"<{values.ndim}Q", *reversed(values.shape))
        names += struct.pack("<IQ", 8 if in_blocks else 0, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0) + names
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return read
