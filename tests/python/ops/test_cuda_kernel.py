"""sf.cuda.Kernel: compiling, the cache, errors and checks of arguments, none of which needs a GPU. NVRTC is needed:
without it, what needs it is skipped.
"""

import os
import pathlib
import subprocess
import sys

import pytest

import scaffolding as sf
from scaffolding import _core

SCALE = """
extern "C" __global__ void scale(const float* __restrict__ x, float* y, float k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = k * x[i];
}
"""


def missing_nvrtc():
    try:
        sf.cuda.Kernel(SCALE, "scale").compile("sm_90")
    except RuntimeError as error:
        if "libnvrtc" in str(error):
            return True
        raise
    return False


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SF_KERNEL_CACHE", "off")
    if missing_nvrtc():
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
    (tmp_path / "kernels").mkdir()
    monkeypatch.setenv("SF_KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def kernel(body, name="f", **options):
    return sf.cuda.Kernel(body, name, **options)


def test_parameters_are_read_from_the_source():
    k = kernel(
        """
        // __global__ void f(int wrong)
        /* __global__ void f(int wrong); */
        namespace a { __device__ void f(int wrong); }
        template <class T> __global__ void other(T* x);
        extern "C" __global__ void __launch_bounds__(256) f(const float * __restrict__ x, __half*y,
            unsigned char const* mask, // (the mask)
            long long n, std::int64_t m, unsigned int u, unsigned long long big, const double eps, bool on,
            const void* p,
            const __nv_bfloat16 *__restrict__ const w, size_t) {}
        """
    )
    assert k.parameters == [
        "const float* x",
        "__half* y",
        "const unsigned char* mask",
        "long long n",
        "int64_t m",
        "unsigned int u",
        "unsigned long long big",
        "const double eps",
        "bool on",
        "const void* p",
        "const __nv_bfloat16* w",
        "size_t",
    ]
    assert kernel("__global__ void f() {}").parameters == [] == kernel("__global__ void f(void) {}").parameters
    assert repr(sf.cuda.Kernel(SCALE, "scale")) == "Kernel(scale(const float* x, float* y, float k, int n))"
    assert kernel(
        "template <int N, class T> __global__ void f(T* x) {}", "f<3, float>", parameters=["float*"]
    ).parameters == ["float*"]


@pytest.mark.parametrize(
    "source, message",
    [
        ("", "no `__global__ void f"),
        ("__global__ void g(int n) {}", "no `__global__ void f"),
        ("__global__ void f(int n", "no `__global__ void f"),
        ("__global__ void f(", "no `__global__ void f"),
        ("__global__ void f(Things things) {}", "a parameter `Things things` cannot be passed"),
        ("__global__ void f(float** rows) {}", "a parameter `float\\*\\* rows` cannot be passed"),
        ("__global__ void f(float x[3]) {}", "cannot be passed"),
        ("__global__ void f(__half h) {}", "a parameter `__half h` cannot be passed"),
        ("__global__ void f(T* x) {}", "cannot be passed"),
        ("__global__ void f(int a b) {}", "cannot be passed"),
        ('__global__ void f(int a, "', "no `__global__ void f"),
    ],
)
def test_sources_that_are_no_kernels(source, message):
    with pytest.raises(ValueError, match=message):
        kernel(source)


def test_arguments_are_checked_before_anything_is_compiled():
    k = sf.cuda.Kernel(SCALE, "scale")
    x, y, compiled = sf.ones(4), sf.empty(4), _core._cuda_kernels_compiled()

    def launch(*args, grid=1, block=4, **options):
        k(grid, block, args, **options)

    with pytest.raises(TypeError, match="'scale' has 4 parameters, got 2 arguments"):
        launch(x, y)
    with pytest.raises(TypeError, match=r"argument 0 \(const float\* x\) needs a float32 tensor, got float64\[4\]"):
        launch(x.double(), y, 2.0, 4)
    with pytest.raises(TypeError, match="argument 1 .* needs a tensor, got a number"):
        launch(x, 3, 2.0, 4)
    with pytest.raises(TypeError, match=r"argument 1 must be a tensor or a number, got str"):
        launch(x, "y", 2.0, 4)
    with pytest.raises(TypeError, match=r"argument 3 \(int n\) needs an integer, got 4.5"):
        launch(x, y, 2.0, 4.5)
    with pytest.raises(
        ValueError, match=r"argument 3 \(int n\) must be in \[-2147483648, 2147483647\], got 2147483648"
    ):
        launch(x, y, 2.0, 2**31)
    with pytest.raises(ValueError, match=r"needs a contiguous tensor, got shape \[4\] with strides \[2\]"):
        launch(sf.ones(8)[::2], y, 2.0, 4)
    with pytest.raises(ValueError, match="grid must be in"):
        launch(x, y, 2.0, 4, grid=0)
    with pytest.raises(ValueError, match="at most 1024 threads, got 2048"):
        launch(x, y, 2.0, 4, block=(64, 32))
    with pytest.raises(ValueError, match="block must be one to three integers"):
        launch(x, y, 2.0, 4, block=(1, 1, 1, 1))
    with pytest.raises(RuntimeError, match="a leaf that requires a gradient cannot be written in place"):
        launch(x, sf.empty(4, requires_grad=True), 2.0, 4)
    with pytest.raises(ValueError, match="needs tensors on a GPU, got cpu"):
        launch(x, y, 2.0, 4)
    assert _core._cuda_kernels_compiled() == compiled


def test_a_binary_for_an_architecture(cache):
    k = sf.cuda.Kernel(SCALE, "scale")
    binaries = [k.compile(arch) for arch in ("sm_80", "sm_90")]
    assert all(b.startswith(b"\x7fELF") for b in binaries) and binaries[0] != binaries[1]


def test_options_and_templates(cache):
    source = "template <class T, int N> __global__ void f(T* x) { for (int i = 0; i < N * M; ++i) x[i] += T(1); }"
    k = sf.cuda.Kernel(source, "f<double, 3>", options=["-DM=2"], parameters=["double*"])
    assert k.compile("sm_90").startswith(b"\x7fELF")
    with pytest.raises(RuntimeError, match='identifier "M" is undefined'):
        sf.cuda.Kernel(source, "f<double, 3>", parameters=["double*"]).compile("sm_90")


def test_an_error_shows_its_line(cache):
    k = kernel("__global__ void f(float* x) {\n  float a = 1;\n  x[0] = a + b;\n}")
    with pytest.raises(
        RuntimeError, match=r"kernel 'f' does not compile at line 3, `x\[0\] = a \+ b;`: identifier \"b\" is undefined"
    ):
        k.compile("sm_90")
    with pytest.raises(RuntimeError, match="kernel 'f' for sm_1: NVRTC: .*-arch=sm_1"):
        kernel("__global__ void f() {}").compile("sm_1")
    assert list(cache.iterdir()) == []


def test_options_that_nvrtc_does_not_know(cache):
    with pytest.raises(RuntimeError, match="NVRTC: .*--no-such-option"):
        sf.cuda.Kernel(SCALE, "scale", options=["--no-such-option"]).compile("sm_90")


def test_headers_are_found_in_the_folders_of_the_environment(cache, tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "answer.h").write_text("constexpr int answer = 42;\n")
    source = '#include "answer.h"\nextern "C" __global__ void f(int* x) { x[0] = answer; }'
    with pytest.raises(RuntimeError, match="answer.h"):
        kernel(source).compile("sm_90")
    for variable in ("SF_CUDA_INCLUDE_PATH", "CUDARC_NVRTC_EXTRA_INCLUDE_PATHS"):
        with monkeypatch.context() as m:
            m.setenv(variable, f"{tmp_path}/nowhere:{tmp_path}/one")
            assert kernel(source).compile("sm_90")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "answer.h").write_text("constexpr int answer = 43;\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert kernel(source).compile("sm_90")


def compile_in_a_new_process(source, environment):
    program = (
        "import sys, scaffolding as sf\nfrom scaffolding import _core\n"
        "binary = sf.cuda.Kernel(sys.argv[1], 'scale').compile('sm_90')\nprint(_core._cuda_kernels_compiled(), "
        "binary[:4] == b'\\x7fELF')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, source], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_files_serve_later_processes_and_damaged_ones_are_compiled_anew(cache):
    environment = {"SF_KERNEL_CACHE": str(cache), "PYTHONPATH": str(pathlib.Path(sf.__file__).parent.parent)}
    assert compile_in_a_new_process(SCALE, environment) == "1 True"
    assert compile_in_a_new_process(SCALE, environment) == "0 True"
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    hostile = whole[:21] + b"\xff" * 8 + whole[29:]  # a length of 2**64 - 1
    for damaged in (
        b"",
        whole[:10],
        whole[:-1],
        whole[:200] + b"?" + whole[201:],
        hostile,
        b"\x00" * 4096,
        whole + b"more",
    ):
        file.write_bytes(damaged)
        assert compile_in_a_new_process(SCALE, environment) == "1 True"
        assert file.read_bytes() == whole
    file.unlink()
    file.mkdir()  # it cannot be replaced
    assert compile_in_a_new_process(SCALE, environment) == "1 True"
    assert [p.name for p in cache.iterdir()] == [file.name], "nothing is left beside it"
    assert compile_in_a_new_process(SCALE, {**environment, "SF_KERNEL_CACHE": "off"}) == "1 True"
    assert compile_in_a_new_process(SCALE, {**environment, "SF_KERNEL_CACHE": "/proc/nothing/here"}) == "1 True"


@pytest.mark.skipif(sf.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_reason_is_given():
    with pytest.raises(RuntimeError, match="cuda:0: not available: .*(driver|libscaffolding_cuda)"):
        sf.cuda.ensure_kernel("cuda", "scale", SCALE)
    with pytest.raises(RuntimeError, match="cuda:0: not available"):
        sf.cuda.Kernel(SCALE, "scale").load()
    with pytest.raises(RuntimeError, match="cuda:0: not available"):
        sf.cuda.Kernel("__global__ void f(int n) {}", "f")(1, 1, [3])


def gate(x, a, b, c):
    return sf.nn.functional.silu(x * a + b) * c


def everything(x):
    y = sf.exp(x.clamp(-3, 2)) + sf.log1p(x.abs()) + sf.tanh(x) * sf.sin(x) - sf.erf(x) + sf.rsqrt(x * x + 1) + x**1.3
    y = (
        y
        + sf.nn.functional.gelu(x)
        + sf.nn.functional.gelu(x, approximate="tanh")
        + sf.nn.functional.mish(x)
        + sf.nn.functional.softplus(x, 2.0, 3.0)
    )
    y = sf.where((x > 0.5) | sf.isnan(x), y % 0.7 + x // 0.7, sf.lerp(x, y, 0.3) + sf.atan2(x, y)) + (x >= 0).to(
        x.dtype
    )
    return sf.maximum(y, sf.round(x)).to(sf.float16)


@pytest.mark.parametrize("dtype", [sf.float32, sf.float64, sf.bfloat16, sf.float16], ids=str)
def test_generated_kernels_compile(cache, dtype):
    x = sf.ones(8, 6, dtype=dtype)
    sources = {
        sf.fuse(gate).cuda_source(x, x, x, x),
        sf.fuse(gate).cuda_source(x, x[:1, :1], sf.ones(6, dtype=dtype), x),
        sf.fuse(gate).cuda_source(x.t(), x.t(), sf.ones(6, 1, dtype=dtype), x.t()),
        sf.fuse(everything).cuda_source(x),
        sf.fuse(lambda x, i: x * i + (i > 3)).cuda_source(x, sf.ones(6, dtype=sf.int64)),
    }
    assert len(sources) == 4  # two layouts with as many dimensions share one
    for source in sources:
        assert kernel(source, "fused", parameters=[]).compile("sm_80").startswith(b"\x7fELF")


def test_integer_arithmetic_is_refused_on_cuda():
    with pytest.raises(NotImplementedError, match="mul of int64 cannot be fused on cuda"):
        sf.fuse(lambda i: i * 2 + 1).cuda_source(sf.ones(3, dtype=sf.int64))


@pytest.mark.skipif(not sf.cuda.is_available(), reason="needs a GPU or its emulator")
class TestOnAGpu:
    def test_launch(self):
        x = sf.randn(1000).to("cuda")
        y = sf.empty(1000, device="cuda")
        k = sf.cuda.ensure_kernel("cuda", "scale", SCALE)
        assert sf.cuda.ensure_kernel("cuda", "scale", SCALE)._kernel is not None
        k((4,), (256,), (x, y, 2.5, 1000))
        assert (y.cpu() == x.cpu() * 2.5).all()
        with pytest.raises(ValueError, match="is another kernel"):
            sf.cuda.ensure_kernel("cuda", "scale", SCALE + "//")

    def test_shared_memory_barriers_and_templates(self):
        k = sf.cuda.Kernel(
            """
            template <class T> __global__ void sums(const T* x, T* y) {
              extern __shared__ float part[];
              __shared__ float first;
              part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
              if (threadIdx.x == 0) first = part[0];
              for (int half = blockDim.x / 2; half > 0; half /= 2) {
                __syncthreads();
                if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
              }
              if (threadIdx.x == 0) y[blockIdx.x] = T(part[0] - first);
            }
            """,
            "sums<float>",
            parameters=["const float*", "float*"],
        )
        x = sf.arange(256, dtype=sf.float32)
        y = sf.empty(4, device="cuda")
        k(4, 64, (x.cuda(), y), shared_mem=256)
        assert (y.cpu() == x.reshape(4, 64)[:, 1:].sum(1)).all()
        with pytest.raises(RuntimeError, match="kernel 'sums<float>'"):
            k(4, 64, (x.cuda(), y), shared_mem=1 << 20)

    def test_a_kernel_in_a_graph(self):
        k = sf.cuda.Kernel(SCALE, "scale")
        k.load()
        x, y = sf.ones(100, device="cuda"), sf.empty(100, device="cuda")
        graph = sf.cuda.CUDAGraph()
        with sf.cuda.graph(graph):
            k(1, 128, (x, y, 3.0, 100))
            k(1, 128, (y, y, 2.0, 100))
        x.fill_(5)
        graph.replay()
        assert y.tolist() == [30.0] * 100

    def test_a_first_launch_may_be_in_a_graph(self):
        k = sf.cuda.Kernel(SCALE.replace("scale", "scale_at_first"), "scale_at_first")
        f = sf.fuse(lambda x: sf.nn.functional.silu(x) * 3 + 0.25)
        x, y = sf.ones(100, device="cuda"), sf.empty(100, device="cuda")
        graph = sf.cuda.CUDAGraph()
        with sf.cuda.graph(graph):
            k(1, 128, (x, y, 3.0, 100))
            z = f(y)
        x.copy_(sf.randn(100))
        graph.replay()
        assert (y.cpu() == x.cpu() * 3).all() and (z == f(x * 3)).all()

    def test_fused(self):
        values = [sf.randn(64, 1000), sf.randn(64, 1), sf.randn(1000), sf.randn(1)]
        for dtype in (sf.float32, sf.bfloat16):
            on = [v.to(dtype).to("cuda") for v in values]
            assert (sf.fuse(gate)(*on).cpu() == gate(*on).cpu()).all()
            leaves = [[v.clone().requires_grad_() for v in on] for _ in range(2)]
            sf.fuse(gate)(*leaves[0]).sum().backward()
            gate(*leaves[1]).sum().backward()
            assert all((a.grad.cpu() == b.grad.cpu()).all() for a, b in zip(*leaves))

    def test_a_source_is_built_for_a_new_layout_or_program_alone(self):
        def built(f, x, c):
            before = _core._fused_cuda_sources_built()
            assert (f(x, x, x, c) == gate(x, x, x, c)).all()
            return _core._fused_cuda_sources_built() - before

        f, memory, one = sf.fuse(gate), sf.randn(4097, device="cuda"), sf.randn(1, device="cuda")
        x, odd = memory[:4096], memory[1:]  # in vectors and not
        assert [built(f, v, one) for v in (x, x, odd, odd, x)] == [1, 0, 1, 0, 0]
        assert [built(f, x.view(64, 64).t(), x[:64]) for _ in range(2)] == [1, 0]
        for k in range(9):  # each program in the memory of the one before
            assert (sf.fuse(lambda x: x * (k % 3) + 1)(x) == x * (k % 3) + 1).all()

    def test_a_function_with_kernels_has_a_gradient(self):
        k = sf.cuda.Kernel(SCALE, "scale")

        class Scale(sf.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.factor = factor
                y = sf.empty_like(x)
                k((x.numel() + 255) // 256, 256, (x, y, factor, x.numel()))
                return y

            @staticmethod
            def backward(ctx, dy):
                dx = sf.empty_like(dy)
                dy = dy.contiguous()
                k((dy.numel() + 255) // 256, 256, (dy, dx, ctx.factor, dy.numel()))
                return dx, None

        x = sf.ones(10, device="cuda", requires_grad=True)
        Scale.apply(x, 3.0).backward(sf.ones(10, device="cuda"))
        assert x.grad.tolist() == [3.0] * 10
