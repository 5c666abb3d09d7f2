"""How many pictures a second clients of a server get."""

import threading
import time


def rate(ask, clients, pictures):
    """Pictures a second while all clients wait: the first and last of each are left out, as the program's start is.

    ask(seed): makes a picture and returns when it is there. What it raises ends its client, and is raised here."""
    left, lock, ends, errors = iter(range(pictures)), threading.Lock(), [], []

    def client():
        try:
            while True:
                with lock:
                    seed = next(left, None)
                if seed is None:
                    return
                ask(seed)
                with lock:
                    ends.append(time.perf_counter())
        except BaseException as e:  # SystemExit too, of which a thread would tell nobody
            errors.append(e)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return (pictures - 2 * clients) / (ends[-1 - clients] - ends[clients - 1])
