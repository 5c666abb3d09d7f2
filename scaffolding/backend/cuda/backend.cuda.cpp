// The CUDA device at run time. Loading this library registers it; nothing touches a GPU before the first use.
#include "scaffolding/backend/accelerator.h"

#include "scaffolding/backend/cuda/caching_allocator.h"
#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/cudnn.h"
#include "scaffolding/backend/cuda/current_stream.h"
#include "scaffolding/backend/cuda/pinned_memory.h"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/relaxed.h"
#include "scaffolding/backend/cuda/reports.h"
#include "scaffolding/backend/cuda/run_time_kernel.h"

namespace sf::cuda {

namespace {

class CudaBackend final : public Accelerator {
 public:
  void* allocate(size_t bytes, int index) override {
    check_usable(index);
    return CachingAllocator::of(index).allocate(bytes);
  }
  void release(void* data, size_t, int index) noexcept override { CachingAllocator::of(index).release(data); }

  void copy(void* dst, Device dst_device, const void* src, Device src_device, size_t bytes) override {
    if (bytes == 0) return;
    if (dst_device.is_cpu() || src_device.is_cpu()) refuse_while_capturing("copy", "a copy from or to host memory");
    if (dst_device.is_cuda() && src_device.is_cuda() && dst_device.index != src_device.index)
      return copy_between(dst, dst_device, src, src_device, bytes);
    Device gpu = dst_device.is_cuda() ? dst_device : src_device;
    Stream stream = Stream::current(gpu.index);
    DeviceScope scope(gpu.index);
    check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream.handle), "copy");
    // Callers reuse or free host memory as soon as this returns, on either side.
    if (dst_device.is_cpu() || src_device.is_cpu()) stream.synchronize();
  }

  void copy_async(void* dst, Device dst_device, const void* src, Device src_device, size_t bytes) override {
    if (bytes == 0) return;
    Device gpu = dst_device.is_cuda() ? dst_device : src_device;
    const void* host = dst_device.is_cpu() ? dst : src;
    Stream stream = Stream::current(gpu.index);
    CudaGraph* graph = CudaGraph::recording();
    if (graph && !is_pinned(host)) refuse_while_capturing("copy", "a copy from or to host memory that is not pinned");
    DeviceScope scope(gpu.index);
    check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream.handle), "copy");
    if (graph) graph->keep_alive(PinnedMemory::instance().hold(host));
    else PinnedMemory::instance().used_by(host, stream);
  }
  void* allocate_pinned(size_t bytes) override { return PinnedMemory::instance().allocate(bytes); }
  void release_pinned(void* data) noexcept override { PinnedMemory::instance().release(data); }
  bool is_pinned(const void* data) override {
    if (PinnedMemory::instance().contains(data)) return true;
    cudaPointerAttributes a{};
    if (cudaPointerGetAttributes(&a, data) == cudaSuccess) return a.type == cudaMemoryTypeHost;
    cudaGetLastError();
    return false;
  }
  PinnedStatistics pinned_memory() override { return PinnedMemory::instance().statistics(); }
  void empty_pinned_cache() override { PinnedMemory::instance().empty_cache(); }

  void synchronize(int index) override {
    check_usable(index);
    refuse_while_capturing("synchronize", "waiting for the device");
    DeviceScope scope(index);
    const Wait wait(index);
    check(cudaDeviceSynchronize(), "synchronize");
    wait.over_for_device();
    Reports::instance().raise();
  }
  int device_count() override { return cuda::device_count(); }

  const DeviceProperties& properties(int index) override { return cuda::properties(index); }
  MemoryStatistics memory(int index) override {
    check_usable(index);
    return CachingAllocator::of(index).statistics();
  }
  DeviceMemory device_memory(int index) override {
    check_usable(index);
    DeviceScope scope(index);
    DeviceMemory m;
    check(cudaMemGetInfo(&m.free, &m.total), "cuda");
    return m;
  }
  int cudnn_version(int index, std::string* why) override {
    return cudnn::usable(index, why) ? int(cudnn::api().version()) : 0;
  }
  void reset_peak(int index) override {
    check_usable(index);
    CachingAllocator::of(index).reset_peak();
  }
  void empty_cache(int index) override {
    check_usable(index);
    CachingAllocator::of(index).empty_cache();
  }
  void set_memory_limit(int index, size_t bytes) override {
    check_usable(index);
    CachingAllocator::of(index).set_limit(bytes);
  }

  StreamHandle make_stream(int index) override {
    check_usable(index);
    DeviceScope scope(index);
    cudaStream_t s = nullptr;
    check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "Stream");
    return s;
  }
  void destroy_stream(int index, StreamHandle s) noexcept override {
    without_throwing([&] {
      DeviceScope scope(index);
      const Wait wait(index);
      check(cudaStreamSynchronize(stream_of(s)), "Stream");  // its freed blocks go to other streams
      wait.over_for(stream_of(s));
      CachingAllocator::of(index).forget_stream(stream_of(s));
      check(cudaStreamDestroy(stream_of(s)), "Stream");
    });
  }
  StreamHandle current_stream(int index) override {
    check_usable(index);
    return Stream::current(index).handle;
  }
  void set_current_stream(int index, StreamHandle s) override {
    check_usable(index);
    set_current({index, stream_of(s)});
  }
  void synchronize_stream(int index, StreamHandle s) override { Stream{index, stream_of(s)}.synchronize(); }
  bool stream_done(int index, StreamHandle s) override {
    refuse_while_capturing("query", "asking whether a stream is done");
    DeviceScope scope(index);
    return done(cudaStreamQuery(stream_of(s)));
  }
  void stream_wait(int index, StreamHandle s, EventHandle e) override {
    DeviceScope scope(index);
    check(cudaStreamWaitEvent(stream_of(s), event_of(e), 0), "wait_event");
  }

  EventHandle make_event(int index, bool timing) override {
    check_usable(index);
    DeviceScope scope(index);
    cudaEvent_t e = nullptr;
    check(cudaEventCreateWithFlags(&e, timing ? cudaEventDefault : cudaEventDisableTiming), "Event");
    return e;
  }
  void destroy_event(int index, EventHandle e) noexcept override {
    without_throwing([&] {
      DeviceScope scope(index);
      check(cudaEventDestroy(event_of(e)), "Event");
    });
  }
  void record_event(int index, EventHandle e, StreamHandle s) override {
    DeviceScope scope(index);
    check(cudaEventRecord(event_of(e), stream_of(s)), "Event.record");
  }
  void synchronize_event(int index, EventHandle e) override {
    refuse_while_capturing("Event.synchronize", "waiting for an event");
    DeviceScope scope(index);
    check(cudaEventSynchronize(event_of(e)), "Event.synchronize");
    Reports::instance().raise();
  }
  bool event_done(int index, EventHandle e) override {
    DeviceScope scope(index);
    Relaxed relaxed;  // another thread may capture a graph
    return done(cudaEventQuery(event_of(e)));
  }
  double milliseconds_between(int index, EventHandle start, EventHandle end) override {
    DeviceScope scope(index);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, event_of(start), event_of(end)), "Event.elapsed_time");
    return double(ms);
  }

  void record_stream(int index, const void* data, StreamHandle s) override {
    CachingAllocator::of(index).record_stream(data, stream_of(s));
  }

  void begin_capture(int index, uint64_t pool, CaptureMode mode) override { cuda::begin_capture(index, pool, mode); }
  GraphHandle end_capture(int index, size_t& nodes) override { return cuda::end_capture(index, nodes); }
  void launch_graph(int index, GraphHandle g) override { cuda::launch_graph(index, *static_cast<ReadyGraph*>(g)); }
  void destroy_graph(int index, GraphHandle g, uint64_t pool) noexcept override {
    without_throwing([&] { cuda::destroy_graph(index, static_cast<ReadyGraph*>(g), pool); });
  }
  void write_words(int index, void* data, const uint64_t (&words)[2]) override {
    cuda::write_words(index, data, words);
  }

  KernelHandle load_kernel(int index, const void* image, const char* entry) override {
    check_usable(index);
    DeviceScope scope(index);
    return cuda::load_kernel(image, entry);
  }
  void launch_kernel(int index, KernelHandle kernel, const KernelLaunch& l, void** arguments,
                     const char* name) override {
    check_usable(index);
    DeviceScope scope(index);
    cuda::launch_kernel(index, kernel, l, Stream::current(index).handle, arguments, name);
  }

 private:
  static cudaStream_t stream_of(StreamHandle s) { return static_cast<cudaStream_t>(s); }
  static cudaEvent_t event_of(EventHandle e) { return static_cast<cudaEvent_t>(e); }
  static bool done(cudaError_t status) {
    if (status == cudaErrorNotReady) return false;
    check(status, "query");
    return true;
  }
  // Two GPUs: dst may still be in use by work queued on its device, and src still be written on its own.
  static void copy_between(void* dst, Device dst_device, const void* src, Device src_device, size_t bytes) {
    Stream::current(dst_device.index).synchronize();
    Stream stream = Stream::current(src_device.index);
    DeviceScope scope(src_device.index);
    check(cudaMemcpyPeerAsync(dst, dst_device.index, src, src_device.index, bytes, stream.handle), "copy");
    stream.synchronize();
  }
};

__attribute__((constructor)) void register_this_backend() {
  static CudaBackend backend;
  register_backend(DeviceType::CUDA, backend);
}

}  // namespace

}  // namespace sf::cuda
