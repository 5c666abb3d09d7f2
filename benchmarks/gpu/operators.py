"""Rows of single ops. Sizes come from rows.py."""

import math

from work import Work, bf16, device, ours, rotated


def copy(lib, numel):
    x, y = bf16(lib, numel), lib.empty(numel, device=device(lib), dtype=lib.bfloat16)
    return Work([lambda: y.copy_(x)], moved=4 * numel)


def matmul(lib, n):
    a, b = bf16(lib, n, n), bf16(lib, n, n)
    return Work([lambda: lib.matmul(a, b)] * 4, flop=2 * n**3, moved=6 * n * n)


def conv(lib, n, c, pixels, out):
    x, w = (
        t.contiguous(memory_format=lib.channels_last)
        for t in (bf16(lib, n, c, pixels, pixels), bf16(lib, out, c, 3, 3))
    )
    bias = bf16(lib, out)
    moved = 2 * (n * (c + out) * pixels * pixels + 9 * c * out)
    return Work(
        [lambda: lib.nn.functional.conv2d(x, w, bias, padding=1)] * 4,
        flop=18 * n * c * out * pixels * pixels,
        moved=moved,
    )


def attention(lib, n, heads, length, width, backward=False, cudnn=True):
    """cudnn: whether cuDNN may serve it; else our own kernels do, or what torch chooses by itself."""
    # [n, length, heads, width] in memory, as the projections leave it
    q, k, v, dy = (
        bf16(lib, n, length, heads, width).transpose(1, 2).detach().requires_grad_(backward) for _ in range(4)
    )
    numel = n * heads * length * width
    flop = 4 * numel * length
    if ours(lib):
        lib.backends.cudnn.enabled = cudnn

        def sdpa():
            return lib.nn.functional.scaled_dot_product_attention(q, k, v)

    else:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # torch gives cuDNN heads of up to 256; wider ones go to what it takes by itself
        order = (
            [SDPBackend.CUDNN_ATTENTION]
            if cudnn and device(lib) == "cuda" and width <= 256
            else [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        )

        def sdpa():
            with sdpa_kernel(order):
                return lib.nn.functional.scaled_dot_product_attention(q, k, v)

    if not backward:
        return Work([sdpa] * 4, flop=flop, moved=8 * numel)
    y, dy = sdpa(), dy.detach()
    return Work(
        [lambda: lib.autograd.grad(y, (q, k, v), dy, retain_graph=True)] * 4,
        flop=2.5 * flop,
        moved=16 * numel,
        grad=True,
    )


def group_norm_silu(lib, n, c, pixels):
    f, groups = lib.nn.functional, math.gcd(32, c)

    def prepare():
        x, w, b = (
            bf16(lib, n, c, pixels, pixels).contiguous(memory_format=lib.channels_last),
            bf16(lib, c),
            bf16(lib, c),
        )
        if ours(lib):
            return lambda: f.group_norm_silu(x, groups, w, b)
        return lambda: f.silu(f.group_norm(x, groups, w, b))

    size = 4 * n * c * pixels * pixels
    return Work(rotated(prepare, size), moved=size)


def layer_norm(lib, rows, width):
    def prepare():
        x, w, b = bf16(lib, rows, width), bf16(lib, width), bf16(lib, width)
        return lambda: lib.nn.functional.layer_norm(x, (width,), w, b)

    return Work(rotated(prepare, 4 * rows * width), moved=4 * rows * width)


def unary(lib, op, *shape):
    def prepare():
        x = bf16(lib, *shape)
        return {"softmax": lambda: lib.softmax(x, -1), "gelu": lambda: lib.nn.functional.gelu(x)}[op]

    return Work(rotated(prepare, 4 * math.prod(shape)), moved=4 * math.prod(shape))


def sizes_of(numel, tensors):
    """As many elements in tensors of very different sizes, as in a UNet."""
    weights = [1 + (i * 7919 % 97) ** 2 for i in range(tensors)]
    sizes = [max(1, numel * w // sum(weights)) for w in weights]
    sizes[-1] += max(0, numel - sum(sizes))
    return sizes


def adamw(lib, numel, tensors):
    parameters = [lib.nn.Parameter(lib.randn(n, device=device(lib))) for n in sizes_of(numel, tensors)]
    for p in parameters:
        p.grad = lib.randn(*p.shape, device=device(lib))
    optimizer = capturable_adamw(lib, parameters)
    # float32: parameter, gradient and both moments read, all but the gradient written
    return Work([lambda: optimizer.step()], moved=28 * numel)


def capturable_adamw(lib, parameters):
    options = {} if ours(lib) else {"fused": True}
    if device(lib) == "cuda":
        options |= {"capturable": True, "lr": lib.tensor(1e-4, device="cuda")}
    return lib.optim.AdamW(parameters, weight_decay=0.01, **options)


def small_add(lib, calls):
    """Host time of one op from Python: work.calls are too small for the device to matter."""
    a, b = lib.randn(2, device=device(lib)), lib.randn(2, device=device(lib))
    return Work([lambda: a + b] * calls)


def chain(lib, nodes):
    """Nodes that wait for each other."""
    x = lib.randn(2, device=device(lib))
    return Work([lambda: x.add_(1.0)] * nodes)


def mlp_step(lib):
    net = lib.nn.Sequential(lib.nn.Linear(256, 512), lib.nn.ReLU(), lib.nn.Linear(512, 10)).to(device(lib))
    optimizer = capturable_adamw(lib, net.parameters())
    x, target = lib.randn(32, 256, device=device(lib)), lib.randint(0, 10, (32,), device=device(lib))

    def step():
        optimizer.zero_grad()
        lib.nn.functional.cross_entropy(net(x), target).backward()
        optimizer.step()

    return Work([step], grad=True)


def scaled_mm(lib, n):
    """float8 e4m3 by float8 e4m3 into bfloat16, one scale each."""
    a, b = lib.randn(n, n, device=device(lib)), lib.randn(n, n, device=device(lib))
    if ours(lib):
        (a, scale_a), (b, scale_b) = lib.quantize_fp8(a), lib.quantize_fp8(b)

        def product():
            return lib.scaled_mm(a, b.t(), scale_a, scale_b)

    else:
        scale_a = scale_b = lib.ones((), device=device(lib))
        a, b = a.to(lib.float8_e4m3fn), b.to(lib.float8_e4m3fn)

        def product():
            return lib._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=lib.bfloat16)

    return Work([product] * 4, flop=2 * n**3, moved=4 * n * n, tensor_rate=2)


def quantize_fp8(lib, rows, cols):
    x = bf16(lib, rows, cols)
    return Work([lambda: lib.quantize_fp8(x, per_row=True)], moved=3 * rows * cols)


def dequantize_fp8(lib, rows, cols):
    q, scale = lib.quantize_fp8(lib.randn(rows, cols, device="cuda"), per_row=True)
    return Work([lambda: lib.dequantize_fp8(q, scale, lib.bfloat16)], moved=3 * rows * cols)


def dequantize_gguf(lib, rows, cols):
    blocks = lib.quantize_gguf(lib.randn(rows, cols), "Q4_K").to("cuda")
    return Work(
        [lambda: lib.dequantize_gguf(blocks, "Q4_K", (rows, cols), lib.bfloat16)], moved=(2 + 144 / 256) * rows * cols
    )


def linear_gguf(lib, rows, n):
    """So many weights that no cache holds them."""
    weights = [lib.quantize_gguf(lib.randn(n, n), "Q4_K").to("cuda") for _ in range(4)]
    x = bf16(lib, rows, n)
    return Work(
        [lambda w=w: lib.linear_gguf(x, w, None, "Q4_K") for w in weights],
        flop=2 * rows * n * n,
        moved=144 / 256 * n * n + 4 * rows * n,
    )


def linear_int8(lib, rows, n):
    codes, most = lib.quantize_int8(lib.randn(n, n, device="cuda"))
    x = bf16(lib, rows, n)
    return Work(
        [lambda: lib.linear_int8(x, codes, most, dynamic=True)] * 4,
        flop=2 * rows * n * n,
        moved=n * n + 4 * rows * n,
        tensor_rate=2,
    )


def dequantize_nf4(lib, rows, cols):
    """With the magnitudes of blocks in eight bits."""
    codes, absmax = lib.quantize_nf4(lib.randn(rows, cols, device="cuda"))
    small, nested = lib.quantize_blockwise(absmax - absmax.mean())
    offset, size = absmax.mean(), (rows, cols)
    return Work(
        [lambda: lib.dequantize_nf4(codes, small, size, lib.bfloat16, nested_absmax=nested, offset=offset)],
        moved=2.5 * rows * cols,
    )
