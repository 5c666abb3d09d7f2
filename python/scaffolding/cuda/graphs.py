"""Work of a stream, captured once and replayed as a whole, under torch.cuda's names.

What is captured does not run. A replay repeats it on the same memory: write inputs into the tensors that were read,
read results from those that were made. Nothing that needs the host (item(), copies from and to it) may be captured.
"""

import gc

from .. import _core
from ..autograd import Function
from ..autograd import grad as _grad
from ..nn.module import Module
from .devices import device_index, synchronize
from .memory import empty_cache
from .streams import Stream, current_stream
from .streams import stream as _stream

_MODES = ("global", "thread_local", "relaxed")


def graph_pool_handle():
    """A memory pool for graphs that are replayed in the order of their capture and never at once."""
    return _core._cuda_graph_pool()


def is_current_stream_capturing():
    """Whether this thread is capturing a graph."""
    return _core._cuda_is_capturing()


class CUDAGraph:
    """Captured work. Use `with sf.cuda.graph(g): ...`, then g.replay().
    Random numbers go on from replay to replay as if the ops were called. device: of the GPU; None: the current one.
    """

    def __init__(self, device=None):
        self.device_index = device_index(device)
        self._graph = _core._CudaGraph(self.device_index)

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """From here the current stream's work is captured; not the default stream's. pool: of another graph or of
        graph_pool_handle(); None: one of its own. capture_error_mode: what other threads must not do meanwhile:
        "global", "thread_local" or "relaxed", as CUDA has them."""
        if capture_error_mode not in _MODES:
            raise ValueError(
                f"CUDAGraph.capture_begin: capture_error_mode must be one of {', '.join(_MODES)}, got "
                f"{capture_error_mode!r}"
            )
        self._graph.capture_begin(pool or 0, _MODES.index(capture_error_mode))

    def capture_end(self):
        """Ends the capture, on the thread that began it."""
        self._graph.capture_end()

    def replay(self):
        """Runs what was captured, on the current stream, and does not wait for it."""
        self._graph.replay()

    def reset(self):
        """Forgets the capture and gives back the memory that no tensor uses."""
        self._graph.reset()

    def pool(self):
        """The pool of its memory, for `pool=` of another graph."""
        if not self._graph.captured():
            raise RuntimeError("CUDAGraph.pool: nothing was captured yet")
        return self._graph.pool()


class graph:
    """Captures the block's work into cuda_graph, on a stream of its own unless one is given; pool and
    capture_error_mode are capture_begin's. Run the same code once
    before: libraries are loaded and small tables copied by the first call, which cannot be part of a graph."""

    _streams = {}

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        index = cuda_graph.device_index
        if stream is None and index not in graph._streams:
            graph._streams[index] = Stream(index)
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = stream or graph._streams[index]

    def __enter__(self):
        synchronize(self.cuda_graph.device_index)
        gc.collect()  # what a collection frees while capturing would be lost to others until its end
        empty_cache()
        self._scope = _stream(self.capture_stream)
        self._scope.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._scope.__exit__(None, None, None)
            raise

    def __exit__(self, kind, error, traceback):
        try:
            if kind is None:
                self.cuda_graph.capture_end()
            else:
                self.cuda_graph.reset()
        finally:
            self._scope.__exit__(None, None, None)


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """callables whose forward and backward passes are replays of graphs: functions or modules of tensors, one or a
    tuple of them, with a tuple of arguments each in sample_args (which say shapes, dtypes and requires_grad). Give them
    in the order in which they will run. Modules are changed in place, for the training mode they are in; the other mode
    runs as before. Results are overwritten by the next call. num_warmup_iters: calls before the capture.
    allow_unused_input: whether an argument may get no gradient. pool: of the graphs' memory; None: one of their own."""
    single = not isinstance(callables, (tuple, list))
    functions, samples = ((callables,), (sample_args,)) if single else (tuple(callables), tuple(sample_args))
    if len(functions) != len(samples):
        raise ValueError(
            f"make_graphed_callables: one tuple of sample_args per callable, got {len(functions)} and {len(samples)}"
        )
    for arguments in samples:
        for a in arguments:
            if not isinstance(a, _core.Tensor) or a.device.type != "cuda":
                raise TypeError("make_graphed_callables: sample_args must be tuples of CUDA tensors")
    devices = {a.device.index or 0 for arguments in samples for a in arguments}
    if len(devices) != 1:
        raise ValueError(f"make_graphed_callables: all sample_args must be on one device, got {len(devices)}")
    index = devices.pop()
    pool = pool or graph_pool_handle()
    parts = [_Part(f, arguments, allow_unused_input) for f, arguments in zip(functions, samples)]
    side = Stream(index)
    side.wait_stream(current_stream(index))
    with _stream(side):
        for part in parts:
            for _ in range(num_warmup_iters):
                part.run_backward(part.run())
    current_stream(index).wait_stream(side)
    for part in parts:
        part.capture_forward(index, pool)
    # gradients come in this order, and graphs of a pool replay in the order of their capture
    for part in reversed(parts):
        part.capture_backward(index, pool)
    graphed = tuple(part.graphed() for part in parts)
    return graphed[0] if single else graphed


class GraphedStep:
    """See make_graphed_step."""

    def __init__(self, step):
        packing = self._packing = []

        def run(inputs):
            results = step(*inputs)
            if results is None or isinstance(results, _core.Tensor):
                keys, tensors = type(results), [] if results is None else [results]
            elif isinstance(results, dict):
                keys, tensors = list(results), list(results.values())
            elif isinstance(results, (tuple, list)):
                keys, tensors = type(results), list(results)
            else:
                keys, tensors = None, [results]
            if not all(isinstance(t, _core.Tensor) for t in tensors):
                raise TypeError(
                    "make_graphed_step: the step must return tensors, or a tuple, list or dict of them, or None, got "
                    f"{type(results).__name__}"
                )
            packing[:] = [keys]
            return tensors

        self._core = _core._GraphedStep(run)

    def __call__(self, *inputs):
        for x in inputs:
            if not isinstance(x, _core.Tensor):
                raise TypeError(f"make_graphed_step: inputs must be tensors, got {type(x).__name__}")
        results, keys = self._core(list(inputs)), self._packing[0]
        if isinstance(keys, list):
            return dict(zip(keys, results))
        if keys in (tuple, list):
            return keys(results)
        return results[0] if results else None

    @property
    def statistics(self):
        """{"eager", "captures", "replays", "kept"}: steps run op by op, graphs made, replays so far, graphs kept."""
        return self._core.statistics()

    def reset(self):
        """Forgets all graphs and gives their memory back: after weights were replaced.
        Tensors that are given other memory are noticed.
        """
        self._core.reset()


def make_graphed_step(step):
    """`step(*tensors)`, a whole training step, as one CUDA graph for each shape of its inputs, with the same numbers.

    The step zeroes gradients, computes the loss, calls backward() and the optimizer (capturable=True), and returns
    tensors, such as the loss. The first call with a shape runs it op by op, which makes gradients and the optimizer's
    state; the second captures it; from then on a call copies its inputs into the graph's and replays. Eight shapes are
    kept. Schedules step outside. autocast belongs inside. May decorate the function.
    """
    return GraphedStep(step)


class _Part:
    """One callable of make_graphed_callables: its static tensors and its two graphs."""

    def __init__(self, function, arguments, allow_unused):
        self.function, self.arguments, self.allow_unused = function, tuple(arguments), allow_unused
        self.inputs = self.arguments + (tuple(function.parameters()) if isinstance(function, Module) else ())
        self.backward_graph = None

    def run(self):
        """The outputs, always as a tuple."""
        outputs = self.function(*self.arguments)
        self.one_output = not isinstance(outputs, (tuple, list))
        outputs = (outputs,) if self.one_output else tuple(outputs)
        if not all(isinstance(y, _core.Tensor) for y in outputs):
            raise TypeError("make_graphed_callables: a callable must return a tensor or a tuple of tensors")
        return outputs

    def run_backward(self, outputs, grad_outputs=None):
        """The gradient of each input, None where there is none."""
        inputs = [x for x in self.inputs if x.requires_grad]
        results = [y for y in outputs if y.requires_grad]
        if not inputs or not results:
            return (None,) * len(self.inputs)
        grad_outputs = grad_outputs or [_core.empty_like(y) for y in results]
        grads = iter(_grad(results, inputs, grad_outputs, allow_unused=self.allow_unused))
        return tuple(next(grads) if x.requires_grad else None for x in self.inputs)

    def capture_forward(self, index, pool):
        self.forward_graph = CUDAGraph(index)
        with graph(self.forward_graph, pool=pool):
            self.outputs = self.run()

    def capture_backward(self, index, pool):
        self.grad_outputs = [_core.empty_like(y) if y.requires_grad else None for y in self.outputs]
        self.grads = (None,) * len(self.inputs)
        if not any(y.requires_grad for y in self.outputs) or not any(x.requires_grad for x in self.inputs):
            return
        self.backward_graph = CUDAGraph(index)
        with graph(self.backward_graph, pool=pool):
            self.grads = self.run_backward(self.outputs, [g for g in self.grad_outputs if g is not None])
        self.grads = tuple(None if g is None else g.detach() for g in self.grads)

    def graphed(self):
        part = self

        class Graphed(Function):
            @staticmethod
            def forward(ctx, *inputs):
                for static, given in zip(part.arguments, inputs):
                    if static.shape != given.shape or static.dtype is not given.dtype:
                        raise ValueError(
                            f"make_graphed_callables: captured for {static.dtype} {list(static.shape)}, got "
                            f"{given.dtype} {list(given.shape)}; "
                            "capture another one for each shape"
                        )
                    if static.data_ptr() != given.data_ptr():
                        static.copy_(given)
                part.forward_graph.replay()
                return tuple(y.detach() for y in part.outputs)

            @staticmethod
            def backward(ctx, *gradients):
                for static, given in zip(part.grad_outputs, gradients):
                    if static is not None and given is not None:
                        static.copy_(given)
                if part.backward_graph is not None:
                    part.backward_graph.replay()
                return tuple(None if g is None else g.detach() for g in part.grads)

        def call(*arguments):
            if len(arguments) != len(part.arguments):
                raise TypeError(
                    f"make_graphed_callables: captured with {len(part.arguments)} arguments, got {len(arguments)}"
                )
            outputs = Graphed.apply(*arguments, *part.inputs[len(part.arguments) :])
            return outputs[0] if part.one_output else outputs

        if not isinstance(self.function, Module):
            return call
        module, training, plain = self.function, self.function.training, self.function.forward
        module.forward = lambda *arguments: call(*arguments) if module.training == training else plain(*arguments)
        return module
