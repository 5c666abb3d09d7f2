"""DeviceMesh: the processes as a grid, with a group for each row of it."""

from ._groups import _group, _World, new_group


class DeviceMesh:
    """The ranks of processes in a grid of dimensions with names, mesh_dim_names; made by init_device_mesh. device_type:
    "cpu" or "cuda".

    mesh["dp"] is the part of a dimension, in which this process is; get_group("dp") its group.
    """

    def __init__(self, device_type, mesh, *, mesh_dim_names=None, _groups=None):
        self.device_type = device_type
        self._ranks, self._shape = _flat(mesh)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names is not None else None
        if len(set(self._ranks)) != len(self._ranks):
            raise ValueError(f"DeviceMesh: every rank once, got {self._ranks}")
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != len(self._shape):
            raise ValueError(
                f"DeviceMesh: {len(self._shape)} dimensions and {len(self.mesh_dim_names)} names: {mesh_dim_names}"
            )
        self._dim_groups = self._make_groups() if _groups is None else _groups

    def _make_groups(self):
        groups = []
        own = _group("DeviceMesh", None).rank()
        for dim, size in enumerate(self._shape):
            stride = 1
            for n in self._shape[dim + 1 :]:
                stride *= n
            found = None
            for first in range(len(self._ranks)):
                if first // stride % size:
                    continue
                row = [self._ranks[first + i * stride] for i in range(size)]
                if sorted(row) == list(range(_World.group.size())):
                    made = _World.group  # the whole world has its group
                else:
                    made = new_group(row)
                if own in row:
                    found = made
            groups.append(found)
        return groups

    @property
    def shape(self):
        return self._shape

    @property
    def ndim(self):
        return len(self._shape)

    @property
    def mesh(self):
        from .. import _core

        return _core.tensor(self._ranks).reshape(list(self._shape))

    def size(self, mesh_dim=None):
        """How many processes there are, or a dimension, mesh_dim, has."""
        return len(self._ranks) if mesh_dim is None else self._shape[self._dim("size", mesh_dim)]

    def _dim(self, op, mesh_dim):
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"DeviceMesh.{op}: there is no dimension {mesh_dim!r}; there are {self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        if mesh_dim is None:
            if self.ndim != 1:
                raise RuntimeError(f"DeviceMesh.{op}: name the dimension, of {self.ndim}")
            return 0
        if not 0 <= mesh_dim < self.ndim:
            raise ValueError(f"DeviceMesh.{op}: mesh_dim must be 0 to {self.ndim - 1}, got {mesh_dim}")
        return mesh_dim

    def get_group(self, mesh_dim=None):
        """The group of this process along a dimension, mesh_dim, by number or name."""
        return self._dim_groups[self._dim("get_group", mesh_dim)]

    def get_all_groups(self):
        """The groups of this process along each dimension."""
        return list(self._dim_groups)

    def get_rank(self):
        """The rank of this process in the world."""
        return _group("DeviceMesh.get_rank", None).rank()

    def get_coordinate(self):
        """Where in the grid this process is; None outside of it."""
        own = self.get_rank()
        if own not in self._ranks:
            return None
        at, where = self._ranks.index(own), []
        for size in reversed(self._shape):
            where.insert(0, at % size)
            at //= size
        return where

    def get_local_rank(self, mesh_dim=None):
        """The number of this process along a dimension, mesh_dim."""
        where = self.get_coordinate()
        return None if where is None else where[self._dim("get_local_rank", mesh_dim)]

    def __getitem__(self, name):
        names = (name,) if isinstance(name, str) else tuple(name)
        kept = [self._dim("__getitem__", n) for n in names]
        if kept != sorted(set(kept)):
            raise KeyError(f"DeviceMesh: dimensions must be in their order, {self.mesh_dim_names}, got {names}")
        where = self.get_coordinate()
        ranks = []
        for i, rank in enumerate(self._ranks):
            at, place = i, []
            for size in reversed(self._shape):
                place.insert(0, at % size)
                at //= size
            if where is not None and all(place[d] == where[d] for d in range(self.ndim) if d not in kept):
                ranks.append(rank)
        part = DeviceMesh.__new__(DeviceMesh)
        part.device_type, part.mesh_dim_names = self.device_type, names
        part._ranks, part._shape = ranks, tuple(self._shape[d] for d in kept)
        part._dim_groups = [self._dim_groups[d] for d in kept]
        return part

    def __repr__(self):
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}{names})"


def _flat(mesh):
    """Nested lists of ranks, or a tensor, as (ranks, shape)."""
    if hasattr(mesh, "tolist"):
        mesh = mesh.tolist()
    if not isinstance(mesh, (list, tuple)):
        return [int(mesh)], ()
    parts = [_flat(m) for m in mesh]
    if not parts or any(shape != parts[0][1] for _, shape in parts):
        raise ValueError("DeviceMesh: mesh must be a full grid of ranks")
    return [rank for ranks, _ in parts for rank in ranks], (len(parts), *parts[0][1])


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None):
    """All processes as a grid of mesh_shape, by their ranks, with a group for each of its rows.

    device_type: "cpu" or "cuda". mesh_dim_names: a name for each dimension, such as ("replicate", "shard").
    backend_override: changes nothing.

    >>> mesh = sf.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    >>> mesh["shard"].size()
    1
    """
    if device_type not in ("cpu", "cuda"):
        raise RuntimeError(f"init_device_mesh: device_type must be 'cpu' or 'cuda', got {device_type!r}")
    if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(mesh_dim_names):
        raise RuntimeError(f"init_device_mesh: every name once, got {mesh_dim_names}")
    if mesh_dim_names is not None and len(mesh_dim_names) != len(mesh_shape):
        raise RuntimeError(f"init_device_mesh: {len(mesh_shape)} dimensions and {len(mesh_dim_names)} names")
    world = _group("init_device_mesh", None).size()
    size = 1
    for n in mesh_shape:
        size *= n
    if size != world or any(n < 1 for n in mesh_shape):
        raise RuntimeError(f"init_device_mesh: mesh_shape {tuple(mesh_shape)} has {size} processes, the world {world}")

    def grid(ranks, shape):
        if len(shape) == 1:
            return ranks
        step = len(ranks) // shape[0]
        return [grid(ranks[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]

    return DeviceMesh(device_type, grid(list(range(world)), tuple(mesh_shape)), mesh_dim_names=mesh_dim_names)
