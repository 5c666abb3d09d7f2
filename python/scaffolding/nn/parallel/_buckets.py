"""Buckets: gradients that travel together."""

from ... import _core
from ...autograd.grad_mode import no_grad

# From here on a gradient on a CPU travels from where it lies, alone: an all_reduce of 2 MB moves as much in a second as
# one of 25, and a copy of it costs a third of that.
ALONE_BYTES = 2 << 20


class Bucket:
    """Parameters of one dtype and device, and their gradients one after the other in one tensor. Where there is but one
    and it can, its gradient is that tensor: the bucket is lent it until its mean is there.
    """

    def __init__(self, members, alone=False):
        self.members = members  # (name, parameter), in the order in which their gradients come
        self.alone = alone
        self._lent = False
        self.names = [name for name, _ in members]
        self.at = {}
        self._size = 0
        for name, p in members:
            self.at[name] = (self._size, p.numel())
            self._size += p.numel()
        self._flat, self._views = None, None
        self.waiting = set()  # names whose gradient has not come in this backward
        self.future = None  # of the mean, once it is under way

    @property
    def flat(self):
        """The tensor; a new one where the parameters have been given the one before."""
        self._make()
        return self._flat

    @property
    def views(self):
        """Its parts by name, in the shapes of the parameters."""
        self._make()
        return self._views

    def _make(self):
        if self._flat is None:
            first = self.members[0][1]
            self._flat = _core.empty(self._size, dtype=first.dtype, device=first.device)
            self._views = {name: self._view(name, p) for name, p in self.members}

    def _view(self, name, p):
        at, n = self.at[name]
        return self._flat[at : at + n].reshape(p.shape)

    def without_gradients(self):
        """Names of parameters that have none yet: those of the next backward need not be written to where they are."""
        return {name for name, p in self.members if p.grad is None}

    @no_grad()
    def borrow(self, name, p):
        """The gradient of a parameter where it lies; a copy where it cannot travel from there."""
        grad = p.grad
        if grad is None or grad.requires_grad or not grad.is_contiguous() or grad.dtype != p.dtype:
            return self.take(name, p)
        self._flat, self._views, self._lent = grad.reshape(-1), {name: grad}, True

    def give_back(self):
        """What is borrowed is the parameter's alone again."""
        if self._lent:
            self._flat, self._views, self._lent = None, None, False

    @no_grad()
    def take(self, name, p):
        """The gradient of a parameter; zeros where it has none."""
        self.give_back()
        view = self.views[name]
        if p.grad is None:
            view.zero_()
        elif p.grad.data_ptr() != view.data_ptr():
            view.copy_(p.grad)

    @no_grad()
    def give(self, unused, as_views, fresh=()):
        """The means, to the parameters but for those in unused. fresh: names whose gradient may be another tensor than
        before; theirs becomes a part of this bucket's, which is then theirs alone. On CPUs, where a copy costs what a
        step of a small network does: a GPU's buckets stay where they are, since graphs are captured with them.
        """
        if self.members[0][1].device.type != "cpu":
            fresh = ()
        views, given = self.views, False
        for name, p in self.members:
            if name in unused:
                continue
            view = views[name]
            if p.grad is not None and p.grad.data_ptr() == view.data_ptr():
                continue
            if as_views or (name in fresh and p.is_contiguous()):
                p.grad = view
                given = given or not as_views
            elif p.grad is None:
                p.grad = view.clone()
            else:
                p.grad.copy_(view)
        if given:
            self._flat, self._views = None, None
        self.give_back()


def in_buckets(parameters, cap, first_cap, alone_from=None):
    """(name, parameter) in the order in which gradients come, in buckets of at most cap bytes, in the order in which
    they are full; the first one is smaller, so that something travels early. On CPUs, those of alone_from bytes have
    one for themselves.
    """
    buckets, members, size = [], [], 0
    for name, p in parameters:
        n = p.numel() * p.element_size()
        if alone_from is not None and n >= alone_from and p.device.type == "cpu":
            buckets.append(Bucket([(name, p)], alone=True))
            continue
        last = members[-1][1] if members else p
        limit = cap if buckets else first_cap
        if members and (size + n > limit or (last.dtype, last.device) != (p.dtype, p.device)):
            buckets.append(Bucket(members))
            members, size = [], 0
        members.append((name, p))
        size += n
    return [*buckets, Bucket(members)] if members else buckets


class GradBucket:
    """What a communication hook is given: buffer() are gradients that are to become their mean."""

    def __init__(self, bucket, index, is_last):
        self._bucket, self._index, self._is_last = bucket, index, is_last

    def index(self):
        """Of the buckets, in the order in which they travel."""
        return self._index

    def is_last(self):
        """Whether it is the last of a backward."""
        return self._is_last

    def buffer(self):
        """The gradients, one after the other."""
        return self._bucket.flat

    def set_buffer(self, buffer):
        """Other gradients in their place."""
        self._bucket.flat.copy_(buffer)

    def gradients(self):
        """The gradients of each parameter."""
        return [self._bucket.views[name] for name in self._bucket.names]

    def parameters(self):
        """The parameters, in the order of gradients()."""
        return [p for _, p in self._bucket.members]
