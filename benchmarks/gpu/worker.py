"""One library's process: reads rows as lines of JSON, writes a line for each. python worker.py scaffolding|torch. What
libraries print goes to stderr.

A row that crashes or hangs takes this process along and no other row: __main__.py starts another.
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import time
import traceback


def device_facts(lib):
    if not lib.cuda.is_available():
        return {"device": "none", "version": lib.__version__}
    properties = lib.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "version": lib.__version__,
        "cudnn": lib.backends.cudnn.version(),
        "memory": properties.total_memory,
    }


def answer(lib, request):
    from clock import measure
    from rows import ROWS

    row, how, gpu = ROWS[request["row"]], request["how"], lib.cuda.is_available()
    if not gpu and not request["tiny"]:
        raise RuntimeError(f"{lib.__name__} sees no GPU")
    if gpu:
        lib.cuda.reset_peak_memory_stats()
    lib.backends.cudnn.enabled = True
    # the fastest of what the libraries propose, found by the calls before those that are timed
    lib.backends.cudnn.benchmark = True
    if lib.__name__ == "scaffolding":
        lib.backends.cuda.matmul.benchmark = True
    lib.manual_seed(0)
    start = time.perf_counter()
    # On one stream from the first tensor on: torch computes gradients on the stream of their forward ops, and the
    # default stream cannot be captured.
    with lib.cuda.stream(lib.cuda.Stream()) if gpu else contextlib.nullcontext():
        work = row.make(lib, request["tiny"], how)
        result = measure(lib, work, row.clock or how, request["seconds"])
    result |= {
        "flop": work.flop,
        "moved": work.moved,
        "in_turn": work.in_turn,
        "tensor_rate": work.tensor_rate,
        "images": work.images,
    }
    if gpu:
        result["peak_bytes"] = lib.cuda.max_memory_allocated()
        result["reserved_bytes"] = lib.cuda.max_memory_reserved()
    return result | {"took": time.perf_counter() - start}


def free(lib):
    """Gives everything back: the other library's process shares the GPU."""
    gc.collect()
    if lib.cuda.is_available():
        lib.cuda.synchronize()
        lib.cuda.empty_cache()


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.append(sys.path.pop(0))  # this folder last: what the libraries import are not its modules
    lib = importlib.import_module(sys.argv[1])
    replies.write(json.dumps(device_facts(lib)) + "\n")
    replies.flush()
    for line in sys.stdin:
        try:
            reply = answer(lib, json.loads(line))
            free(lib)
        except Exception as e:
            traceback.print_exc()
            reply = {"error": f"{type(e).__name__}: {e}".split("\n")[0]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
