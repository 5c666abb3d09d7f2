"""Buckets: gradients that travel together."""

from ... import _core
from ...autograd.grad_mode import no_grad

# From here on a gradient on a CPU travels from where it lies. A copy costs a tenth of adding it to those of the others;
# another piece of memory is another transfer, whose wakes cost as much as a copy of some 100 KB.
IN_PLACE_BYTES = 256 << 10


class Bucket:
    """Parameters of one dtype and device, whose gradients travel together. Small ones lie one after the other in one
    tensor; those of in_place_from bytes on CPUs travel from where they are, where nobody asks for the whole.
    """

    def __init__(self, members, in_place_from=None):
        def is_large(p):
            return in_place_from is not None and _bytes(p) >= in_place_from and p.device.type == "cpu"

        self.large = {name for name, p in members if is_large(p)}
        # (name, parameter), in the order in which their gradients come, large ones at the end
        self.members = sorted(members, key=lambda member: member[0] in self.large)
        self.names = [name for name, _ in self.members]
        self._at, size = {}, 0
        for name, p in self.members:
            self._at[name] = (size, p.numel())
            size += p.numel()
        self._size = size
        self._small_size = size - sum(p.numel() for name, p in members if name in self.large)
        self._memory, self._views = None, {}
        self.begin(whole=False)

    def begin(self, whole):
        """A new backward. whole: all gradients are copied together, for somebody who asks for `flat`."""
        self.waiting = set(self.names)  # whose gradient has not come
        self.future = None  # of the mean, once it is under way
        self.whole = whole
        self._where = {}  # gradients that travel from where they are, or copies of them, by name

    def is_in_place(self, name):
        """Whether borrow() takes a gradient where it is."""
        return name in self.large and not self.whole

    @property
    def flat(self):
        """All gradients of a whole bucket; a new tensor where the parameters have been given the one before."""
        self._make(self._size)
        return self._memory

    @property
    def views(self):
        """Its parts by name, in the shapes of the parameters."""
        self._make(self._size)
        return self._views

    def _make(self, size):
        if self._memory is None or self._memory.numel() < size:
            first = self.members[0][1]
            self._memory = _core.empty(size, dtype=first.dtype, device=first.device)
            self._views = {name: self._view(name, p) for name, p in self.members if sum(self._at[name]) <= size}

    def _view(self, name, p):
        at, n = self._at[name]
        return self._memory[at : at + n].reshape(p.shape)

    def without_gradients(self):
        """Names of parameters that have none yet: those of the next backward need not be written to where they are."""
        return {name for name, p in self.members if p.grad is None}

    @no_grad()
    def borrow(self, name, p):
        """The gradient of a parameter where it is, if it can travel from there: it becomes the mean."""
        grad = p.grad
        if self.is_in_place(name) and grad.is_contiguous() and not grad.requires_grad and grad.dtype == p.dtype:
            self._where[name] = grad
        else:
            self.take(name, p)

    @no_grad()
    def take(self, name, p):
        """A copy of a parameter's gradient; zeros where it has none."""
        copy = self._place_of(name, p)
        if p.grad is None:
            copy.zero_()
        elif p.grad.data_ptr() != copy.data_ptr():
            copy.copy_(p.grad)

    @no_grad()
    def take_zeros(self):
        """Nothing, of every parameter."""
        for name, p in self.members:
            self._place_of(name, p).zero_()
        self.waiting = set()

    def _place_of(self, name, p):
        if self.is_in_place(name):
            self._where[name] = _core.empty(p.shape, dtype=p.dtype)
            return self._where[name]
        self._make(self._size if self.whole else self._small_size)
        return self._views[name]

    def tensors(self):
        """What travels, of the same sizes in every process."""
        if self.whole:
            return [self.flat]
        small = [self._memory[: self._small_size]] if self._small_size else []
        return small + [self._where[name].reshape(-1) for name in self.names if name in self.large]

    @no_grad()
    def give(self, unused, as_views, fresh=()):
        """The means, to the parameters but for those in unused. fresh: names whose gradient may be another tensor than
        before; theirs becomes a part of this bucket's, which is then theirs alone. On CPUs, where a copy costs what a
        step of a small network does: a GPU's buckets stay where they are, since graphs are captured with them.
        """
        if self.members[0][1].device.type != "cpu":
            fresh = ()
        given = False
        for name, p in self.members:
            if name in unused:
                continue
            mean = self._where[name] if name in self._where else self._views[name]
            if p.grad is not None and p.grad.data_ptr() == mean.data_ptr():
                continue
            if as_views or (name in fresh and p.is_contiguous()):
                p.grad = mean
                given = given or not (as_views or name in self._where)
            elif p.grad is None:
                p.grad = mean.clone()
            else:
                p.grad.copy_(mean)
        if given:
            self._memory, self._views = None, {}
        self._where = {}


def _bytes(p):
    return p.numel() * p.element_size()


def in_buckets(parameters, cap, first_cap, in_place_from=None):
    """(name, parameter) in the order in which gradients come, in buckets of at most cap bytes; the first one is
    smaller, so that something travels early.
    """
    buckets, members, size = [], [], 0
    for name, p in parameters:
        last = members[-1][1] if members else p
        limit = cap if buckets else first_cap
        if members and (size + _bytes(p) > limit or (last.dtype, last.device) != (p.dtype, p.device)):
            buckets.append(Bucket(members, in_place_from))
            members, size = [], 0
        members.append((name, p))
        size += _bytes(p)
    return [*buckets, Bucket(members, in_place_from)] if members else buckets


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
