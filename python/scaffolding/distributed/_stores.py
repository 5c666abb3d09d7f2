"""Stores: keys and values by which processes find each other."""

import datetime

from .. import _core

Store = _core._distributed.Store


def _seconds(op, timeout, default=None):
    """A timedelta or a number of seconds."""
    if timeout is None:
        return default
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e8:
        raise ValueError(f"{op}: timeout must be a timedelta or seconds, positive and below 1e8, got {timeout!r}")
    return float(seconds)


class TCPStore(_core._distributed._TCPStore):
    """A store that one process serves and all reach by TCP, in the protocol of PyTorch's.

    is_master: this process serves it, on all its addresses; port 0 is then any free one, .port. world_size: how many
    clients the server waits for before this returns, where wait_for_workers is true. timeout: a timedelta or seconds.
    host_name: of the machine that serves. multi_tenant, master_listen_fd: True and numbers are refused. use_libuv:
    changes nothing.
    """

    def __init__(
        self,
        host_name,
        port=29500,
        world_size=None,
        is_master=False,
        timeout=datetime.timedelta(seconds=300),
        wait_for_workers=True,
        multi_tenant=False,
        master_listen_fd=None,
        use_libuv=True,
    ):
        if multi_tenant or master_listen_fd is not None:
            raise NotImplementedError("TCPStore: takes neither multi_tenant nor master_listen_fd")
        size = int(world_size or 0) if wait_for_workers else 0
        super().__init__(host_name, int(port), bool(is_master), max(size, 0), _seconds("TCPStore", timeout))


def _wait(self, keys, timeout=None):
    """Returns when all keys are there; timeout: a timedelta or seconds."""
    self._wait(list(keys), _seconds("Store.wait", timeout, self._timeout))


def _set_timeout(self, timeout):
    """The timeout of get, and of wait without one: a timedelta or seconds."""
    self._set_timeout(_seconds("Store.set_timeout", timeout))


def _multi_get(self, keys):
    """The values of keys."""
    return [self.get(key) for key in keys]


def _multi_set(self, keys, values):
    """Sets several keys, to values of the same number."""
    for key, value in zip(keys, values, strict=True):
        self.set(key, value)


Store.wait = _wait
Store.set_timeout = _set_timeout
Store.timeout = property(lambda self: datetime.timedelta(seconds=self._timeout), doc="Of get and wait.")
Store.multi_get = _multi_get
Store.multi_set = _multi_set
