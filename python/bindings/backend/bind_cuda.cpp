// What scaffolding.cuda asks of a GPU: properties, memory, streams and events.
// Everything raises the reason why there is no GPU.
#include "python/bindings/backend/bind_cuda.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/optim/graphed_step.h"

namespace nb = nanobind;

namespace sf::py {

namespace {

Accelerator& gpu(int index) { return accelerator(Device(Device::CUDA, index)); }
void* pointer(uintptr_t p) { return reinterpret_cast<void*>(p); }
uintptr_t number(void* p) { return reinterpret_cast<uintptr_t>(p); }
Tensor tensor_argument(const char* op, nb::handle o) {
  if (!is_tensor(o.ptr())) fail<TypeError>(op, ": needs a tensor, got ", type_name(o.ptr()));
  return tensor_of(o.ptr());
}

bool& cudnn_setting(CudnnSettings& s, const std::string& name) {
  if (name == "enabled") return s.enabled;
  if (name == "benchmark") return s.benchmark;
  if (name == "deterministic") return s.deterministic;
  return s.allow_tf32;
}

// f(gpu) without the interpreter's lock: it may wait for the device.
template <class F> auto without_lock(int index, const F& f) {
  nb::gil_scoped_release release;
  return f(gpu(index));
}

}  // namespace

void bind_cuda(nb::module_& m) {
  m.def("_cuda_properties", [](int i) {
    const DeviceProperties& p = gpu(i).properties(i);
    return nb::make_tuple(p.name, p.total_memory, p.major, p.minor, p.multiprocessors, p.threads_per_multiprocessor);
  });
  m.def("_cuda_memory", [](int i) {
    MemoryStatistics s = gpu(i).memory(i);
    return nb::make_tuple(s.allocated, s.max_allocated, s.reserved, s.max_reserved, s.segments, s.free_blocks,
                          s.largest_free_block, s.split_free, s.in_graph_pools, s.retries, s.out_of_memory);
  });
  m.def("_cuda_device_memory", [](int i) {
    DeviceMemory d = gpu(i).device_memory(i);
    return nb::make_tuple(d.free, d.total);
  });
  m.def("_cuda_pinned_memory", [] {
    Accelerator* a = loaded_accelerator();
    PinnedStatistics s = a ? a->pinned_memory() : PinnedStatistics();
    return nb::make_tuple(s.allocated, s.reserved, s.max_reserved);
  });
  m.def("_cuda_record_stream", [](nb::handle tensor, uintptr_t s) {
    Tensor t = tensor_argument("record_stream", tensor);
    gpu(t.device().index).record_stream(t.device().index, t.storage()->data, pointer(s));
  });
  m.def("_cuda_set_memory_limit", [](int i, size_t bytes) { gpu(i).set_memory_limit(i, bytes); });
  m.def("_cuda_reset_peak", [](int i) { gpu(i).reset_peak(i); });
  m.def("_cuda_empty_cache", [](int i) { without_lock(i, [&](Accelerator& a) { a.empty_cache(i); }); });
  m.def("_cuda_allow_tf32", &matmul_allow_tf32);
  m.def("_cuda_set_allow_tf32", &set_matmul_allow_tf32);
  m.def("_cuda_matmul_benchmark", &matmul_benchmark);
  m.def("_cuda_set_matmul_benchmark", &set_matmul_benchmark);
  m.def("_cudnn_version", [] { return gpu(0).cudnn_version(0); });
  m.def("_cudnn_get", [](const std::string& name) {
    CudnnSettings s = cudnn_settings();
    return cudnn_setting(s, name);
  });
  m.def("_cudnn_set", [](const std::string& name, bool value) {
    CudnnSettings s = cudnn_settings();
    cudnn_setting(s, name) = value;
    set_cudnn_settings(s);
  });

  m.def("_cuda_make_stream", [](int i) { return number(gpu(i).make_stream(i)); });
  m.def("_cuda_destroy_stream",
        [](int i, uintptr_t s) { without_lock(i, [&](Accelerator& a) { a.destroy_stream(i, pointer(s)); }); });
  m.def("_cuda_current_stream", [](int i) { return number(gpu(i).current_stream(i)); });
  m.def("_cuda_set_current_stream", [](int i, uintptr_t s) { gpu(i).set_current_stream(i, pointer(s)); });
  m.def("_cuda_synchronize_stream",
        [](int i, uintptr_t s) { without_lock(i, [&](Accelerator& a) { a.synchronize_stream(i, pointer(s)); }); });
  m.def("_cuda_stream_done", [](int i, uintptr_t s) { return gpu(i).stream_done(i, pointer(s)); });
  m.def("_cuda_stream_wait", [](int i, uintptr_t s, uintptr_t e) { gpu(i).stream_wait(i, pointer(s), pointer(e)); });

  m.def("_cuda_make_event", [](int i, bool timing) { return number(gpu(i).make_event(i, timing)); });
  m.def("_cuda_destroy_event", [](int i, uintptr_t e) { gpu(i).destroy_event(i, pointer(e)); });
  m.def("_cuda_record_event", [](int i, uintptr_t e, uintptr_t s) { gpu(i).record_event(i, pointer(e), pointer(s)); });
  m.def("_cuda_synchronize_event",
        [](int i, uintptr_t e) { without_lock(i, [&](Accelerator& a) { a.synchronize_event(i, pointer(e)); }); });
  m.def("_cuda_event_done", [](int i, uintptr_t e) { return gpu(i).event_done(i, pointer(e)); });
  m.def("_cuda_graph_pool", &cuda::new_graph_pool);
  m.def("_cuda_before_replay", [](nb::handle f) {
    cuda::CudaGraph* graph = cuda::CudaGraph::recording();
    SF_CHECK_AS(RuntimeError, graph, "_cuda_before_replay: no graph is captured");
    graph->before_replay([f = Held(f)] {
      nb::gil_scoped_acquire gil;
      f.get()();
    });
  });
  m.def("_cuda_is_capturing", [] { return cuda::CudaGraph::recording() != nullptr; });
  nb::class_<optim::GraphedStep>(m, "_GraphedStep")
      .def("__init__",
           [](optim::GraphedStep* self, nb::handle step) {
             new (self) optim::GraphedStep([step = Held(step)](const Tensors& inputs) {
               nb::gil_scoped_acquire gil;
               return nb::cast<Tensors>(step.get()(inputs));
             });
           })
      .def("__call__", [](optim::GraphedStep& g, const Tensors& inputs) { return g(inputs); })
      .def("reset", &optim::GraphedStep::reset)
      .def("statistics", [](const optim::GraphedStep& g) {
        auto s = g.statistics();
        nb::dict out;
        out["eager"] = s.eager, out["captures"] = s.captures, out["replays"] = s.replays, out["kept"] = s.kept;
        return out;
      });
  nb::class_<cuda::CudaGraph>(m, "_CudaGraph")
      .def("__init__", [](cuda::CudaGraph* self, int i) { new (self) cuda::CudaGraph(Device(Device::CUDA, i)); })
      .def("capture_begin",
           [](cuda::CudaGraph& g, uint64_t pool, int mode) { g.capture_begin(pool, CaptureMode(mode)); })
      .def("capture_end", &cuda::CudaGraph::capture_end)
      .def("replay", &cuda::CudaGraph::replay)
      .def("reset", &cuda::CudaGraph::reset)
      .def("pool", &cuda::CudaGraph::pool)
      .def("captured", &cuda::CudaGraph::captured);

  m.def("_cuda_milliseconds_between", [](int i, uintptr_t start, uintptr_t end) {
    return gpu(i).milliseconds_between(i, pointer(start), pointer(end));
  });
}

}  // namespace sf::py
