"""CUDA kernels from source, compiled while the program runs by NVIDIA's NVRTC."""

from .. import _core
from .streams import stream as _stream_scope


def _three(op, name, size):
    size = (size,) if isinstance(size, int) else tuple(size)
    if not 1 <= len(size) <= 3 or not all(isinstance(n, int) for n in size):
        raise ValueError(f"{op}: {name} must be one to three integers, got {size}")
    return (*size, 1, 1)[:3]


class Kernel:
    """A `__global__` function of CUDA C++, to be launched with tensors and numbers.

    `source` is compiled once per GPU architecture, when it is first launched (or by `compile` and `load`), and kept in
    memory and in SF_KERNEL_CACHE. `name` may be an instance of a template ("scale<float>"); `options` are NVRTC's
    ("--use_fast_math", "-DN=4"). The parameters are read from the source; where that does not tell (templates, macros),
    `parameters` lists their declarations: ["const float*", "void*", "int"].

    A call checks the number of arguments, the tensors' dtypes and that they are contiguous and on one GPU, and that
    integers fit. It runs on the current stream and does not wait. It is not recorded: a gradient is an
    `autograd.Function` whose forward and backward launch kernels.
    A tensor behind a pointer that is not const counts as written in place.
    """

    def __init__(self, source, name, options=(), parameters=None):
        self._kernel = _core._CudaKernel(source, name, list(options), None if parameters is None else list(parameters))

    @property
    def name(self):
        return self._kernel.name

    @property
    def parameters(self):
        """The declarations of the parameters, as they were understood."""
        return self._kernel.parameters

    def compile(self, arch):
        """The binary (a cubin, as bytes) for an architecture, arch, such as "sm_90". Needs NVRTC, no GPU.
        RuntimeError shows the line that does not compile.
        """
        return self._kernel.compile(arch)

    def load(self, device="cuda"):
        """Compiles and loads for this GPU, device, now, instead of at the first launch."""
        self._kernel.load(device)
        return self

    def __call__(self, grid=(1, 1, 1), block=(1, 1, 1), args=(), shared_mem=0, stream=None):
        """Launches grid blocks of block threads each (one to three integers),
        with shared_mem bytes of dynamic shared memory.
        """
        op = f"cuda: kernel '{self.name}'"
        grid, block = _three(op, "grid", grid), _three(op, "block", block)
        if stream is None:
            self._kernel.launch(grid, block, args, shared_mem)
            return
        with _stream_scope(stream):
            self._kernel.launch(grid, block, args, shared_mem)

    def __repr__(self):
        return f"Kernel({self.name}({', '.join(self.parameters)}))"


def ensure_kernel(device, name, source):
    """The kernel `name` of `source` on `device`, compiled and loaded at the first call; later calls with the same
    device and name return the same one.

    Headers are looked for in SF_CUDA_INCLUDE_PATH, CUDARC_NVRTC_EXTRA_INCLUDE_PATHS, CUDA_HOME/include and
    CUDA_PATH/include as well, and where NVRTC was found, in pip's nvidia packages for example.
    """
    kernel = Kernel.__new__(Kernel)
    kernel._kernel = _core._cuda_ensure_kernel(device, name, source)
    return kernel
