// Accelerator: a backend whose devices have memory of their own, and what it tells about them. Thread-safe,
// as every Backend.
#pragma once
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/error.h"

namespace sf {

struct DeviceProperties {
  std::string name;
  size_t total_memory = 0;   // bytes
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0, threads_per_multiprocessor = 0;

  // "sm_90a": the GPU's own architecture, which has instructions (wgmma) that "sm_90" lacks; "sm_86" where there is
  // none.
  std::string architecture() const {
    return "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
  }
};
// In bytes. Allocated: in tensors; reserved: also what is kept for the next ones. The largest are since reset_peak.
struct MemoryStatistics {
  size_t allocated = 0, max_allocated = 0, reserved = 0, max_reserved = 0;
  size_t limit = 0;  // that this process gave itself by set_memory_limit; 0: none
  // Fragmentation: what is reserved and not allocated, in how many pieces. split_free lies in segments of which another
  // part is in use, so that no larger tensor fits and the device does not get it back.
  size_t segments = 0, free_blocks = 0, largest_free_block = 0, split_free = 0;
  size_t in_graph_pools = 0;              // reserved for captured graphs alone
  size_t retries = 0, out_of_memory = 0;  // allocations that emptied the cache first; that failed
};

// In bytes, whoever uses it.
struct DeviceMemory {
  size_t free = 0, total = 0;
};

// Of host memory that is pinned, in bytes. Reserved: also what is kept for the next tensors.
struct PinnedStatistics {
  size_t allocated = 0, reserved = 0, max_reserved = 0;
};

// Streams are queues of work that run in order each, events places in them.
// A handle owns nothing and is null for the default stream.
using StreamHandle = void*;
using EventHandle = void*;
using GraphHandle = void*;  // captured work, ready to run

// Which calls that may break a capture are errors while one is going on: of any thread, of its own, or none.
// As CUDA's cudaStreamCaptureMode.
enum class CaptureMode { Global, ThreadLocal, Relaxed };

// A kernel that was compiled while the program runs. Loaded once, it lives as long as the process.
using KernelHandle = const void*;
struct KernelLaunch {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};  // x, y, z
  unsigned shared_memory = 0;                          // bytes of dynamic shared memory of a block
};

// What gives back (release, destroy_...) never throws: once a kernel has failed a context gives nothing back, what it
// held is lost, and the next other call says so.
class Accelerator : public Backend {
 public:
  virtual const DeviceProperties& properties(int index) = 0;  // the driver is asked once
  virtual MemoryStatistics memory(int index) = 0;             // what this process counts: no question to the driver
  // 91900 is cuDNN 9.19.0; 0 where it is missing or does not start, which why then explains.
  virtual int cudnn_version(int index, std::string* why = nullptr) = 0;
  virtual void reset_peak(int index) = 0;
  virtual void empty_cache(int index) = 0;  // waits for the device
  // What tensors and what is kept of them may take together; more is an OutOfMemory. 0: no limit.
  virtual void set_memory_limit(int index, size_t bytes) = 0;

  virtual StreamHandle make_stream(int index) = 0;                      // waits for no other stream by itself
  virtual void destroy_stream(int index, StreamHandle s) noexcept = 0;  // waits until it is done
  virtual StreamHandle current_stream(int index) = 0;                   // on which the calling thread's work is queued
  virtual void set_current_stream(int index, StreamHandle s) = 0;       // of the calling thread
  virtual void synchronize_stream(int index, StreamHandle s) = 0;
  virtual bool stream_done(int index, StreamHandle s) = 0;
  virtual void stream_wait(int index, StreamHandle s, EventHandle e) = 0;  // what comes after on s runs after e

  virtual EventHandle make_event(int index, bool timing) = 0;
  virtual void destroy_event(int index, EventHandle e) noexcept = 0;
  virtual void record_event(int index, EventHandle e, StreamHandle s) = 0;
  virtual void synchronize_event(int index, EventHandle e) = 0;
  virtual bool event_done(int index, EventHandle e) = 0;
  // both made with timing, and done
  virtual double milliseconds_between(int index, EventHandle start, EventHandle end) = 0;

  // data: from allocate; reused only after what s has by its release
  virtual void record_stream(int index, const void* data, StreamHandle s) = 0;

  // ---- pinned host memory: pages that stay where they are, which the device copies while the program goes on
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* data) noexcept = 0;  // reused only after the copies that were queued before
  virtual bool is_pinned(const void* data) = 0;          // by whomever
  virtual PinnedStatistics pinned_memory() = 0;
  virtual void empty_pinned_cache() = 0;
  // On the current stream of the GPU, without waiting where the host's side is pinned. Pageable memory is read before
  // this returns; the host's side must not be pageable memory that is written. A capturing graph keeps the pinned
  // memory, and its replays copy what is in it then.
  virtual void copy_async(void* dst, Device dst_device, const void* src, Device src_device, size_t bytes) = 0;

  // ---- behind CudaGraph, which checks calls. On the calling thread's current stream, which is not the default one.
  virtual void begin_capture(int index, uint64_t pool, CaptureMode mode) = 0;
  // RuntimeError when the capture is broken; it is over then too. nodes: of the graph
  virtual GraphHandle end_capture(int index, size_t& nodes) = 0;
  virtual void launch_graph(int index, GraphHandle g) = 0;
  // g may be null, where the capture failed; waits for the device
  virtual void destroy_graph(int index, GraphHandle g, uint64_t pool) noexcept = 0;
  // by a kernel, so that nothing waits
  virtual void write_words(int index, void* data, const uint64_t (&words)[2]) = 0;

  virtual KernelHandle load_kernel(int index, const void* image, const char* entry) = 0;
  // On the current stream, without waiting; arguments point at the values. `name` is for errors.
  virtual void launch_kernel(int index, KernelHandle kernel, const KernelLaunch& l, void** arguments,
                             const char* name) = 0;

  virtual DeviceMemory device_memory(int index) = 0;  // asks the driver, which takes its time
};

// RuntimeError as backend(); ValueError for the CPU and its like.
inline Accelerator& accelerator(Device device) {
  SF_CHECK(device.is_cuda(), device, " has no memory of its own");
  return static_cast<Accelerator&>(backend(device));
}

// CUDA's where its library was loaded already, else null: for questions that must not start a GPU.
Accelerator* loaded_accelerator();

}  // namespace sf
