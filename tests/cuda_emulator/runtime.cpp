// The runtime's devices, memory, copies and launches on this processor (streams.cpp has the rest). Memory is open while
// work runs and closed otherwise; behind each block lies a page that is always closed, and a new block is full of NaNs.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "grid.h"
#include "races.h"
#include "streams.h"

using namespace cuda_emulator;

namespace {
thread_local cudaError_t last_error = cudaSuccess;
}
cudaError_t cuda_emulator::failed(cudaError_t status) { return last_error = status; }

namespace {

// SF_CUDA_EMULATOR_DEVICES, or two.
const int kDevices = std::getenv("SF_CUDA_EMULATOR_DEVICES") ? std::atoi(std::getenv("SF_CUDA_EMULATOR_DEVICES")) : 2;
constexpr size_t kPage = 4096;
constexpr unsigned char kFresh = 0xff;  // NaN in every floating dtype

struct Block {
  size_t bytes = 0, mapped = 0;
  char* mapping = nullptr;
  int device = 0;
};

std::map<char*, Block> blocks;        // by first byte
std::map<char*, size_t> host_blocks;  // pinned ones: by first byte, their bytes
// kernels that asked for more than kUnaskedShared, by device
std::map<std::pair<const void*, int>, int> dynamic_shared_of;
constexpr size_t kUnaskedShared = 48 << 10;  // CUDA C++ Programming Guide, "Shared Memory"
size_t used = 0,
       total_memory = size_t(std::getenv("SF_CUDA_EMULATOR_DRY") || std::getenv("SF_CUDA_EMULATOR_BLOCKS") ? 139 : 8)
                      << 30;
int open_depth = 0;
int64_t allocations_until_failure = -1;
// What kernels may ask of a GPU: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
struct Gpu {
  const char* name;
  int major, minor, most_shared, threads, multiprocessors;  // bytes of a block, threads of a multiprocessor
};
constexpr Gpu kGpus[] = {{"sm_90", 9, 0, 227 << 10, 2048, 132},   {"sm_80", 8, 0, 163 << 10, 2048, 108},
                         {"sm_86", 8, 6, 99 << 10, 1536, 84},     {"sm_89", 8, 9, 99 << 10, 1536, 128},
                         {"sm_100", 10, 0, 227 << 10, 2048, 148}, {"sm_120", 12, 0, 99 << 10, 1536, 170}};
// That of SF_CUDA_EMULATOR_GPU, or the first.
const Gpu& gpu() {
  static const Gpu& chosen = []() -> const Gpu& {
    const char* name = std::getenv("SF_CUDA_EMULATOR_GPU");
    for (auto& g : kGpus)
      if (!name || std::strcmp(name, g.name) == 0) return g;
    stop("SF_CUDA_EMULATOR_GPU names no GPU that is described in runtime.cpp");
  }();
  return chosen;
}

void protect(int how) {
  if (is_dry()) return;
  for (auto& [data, block] : blocks)
    if (mprotect(block.mapping, block.mapped - kPage, how) != 0) stop("mprotect failed");
}

// SF_CUDA_EMULATOR_MEMORY=apart: device memory is shared memory of an unnamed file, and none of it counts as the
// process's own while no work runs, so that VmHWM says what a program needs of the host. Without,
// it is like any other memory.
bool is_apart() {
  static const char* memory = std::getenv("SF_CUDA_EMULATOR_MEMORY");
  return memory && std::strcmp(memory, "apart") == 0;
}
// The pages of the blocks stay in their files and leave the process.
void set_apart(const Block& b) {
  if (is_apart() && madvise(b.mapping, b.mapped - kPage, MADV_DONTNEED) != 0) stop("madvise failed");
}
char* map_device_memory(size_t bytes) {
  if (cuda_emulator::only_ends()) {  // between closed stretches that are longer than an index of 32 bits reaches
    constexpr size_t kAround = size_t(64) << 30;
    void* all = mmap(nullptr, bytes + 2 * kAround, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char* start = static_cast<char*>(all) + kAround;
    return all == MAP_FAILED || mprotect(start, bytes, PROT_READ | PROT_WRITE) != 0 ? nullptr : start;
  }
  int fd = is_apart() ? memfd_create("device memory", MFD_CLOEXEC) : -1;
  if (is_apart() && (fd < 0 || ftruncate(fd, off_t(bytes)) != 0)) return nullptr;
  // Large ones in huge pages where the system has them: all blocks are opened and closed around each piece of work,
  // which takes a time per page.
  constexpr size_t kHuge = size_t(2) << 20;
  size_t spare = !is_apart() && bytes > kHuge ? kHuge : 0;
  void* mapping = mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE,
                       is_apart() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
  if (fd >= 0) close(fd);
  if (mapping == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(mapping);
  if (!spare) return start;
  size_t before = (kHuge - reinterpret_cast<uintptr_t>(start) % kHuge) % kHuge;
  if (before) munmap(start, before);
  munmap(start + before + bytes, spare - before);
  madvise(start + before, bytes, MADV_HUGEPAGE);  // a wish
  return start + before;
}

const std::pair<char* const, Block>* block_with(const void* p) {
  auto it = blocks.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  if (it == blocks.begin()) return nullptr;
  --it;
  return static_cast<const char*>(p) < it->first + it->second.bytes ? &*it : nullptr;
}

bool is_pinned(const void* p) {
  auto it = host_blocks.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  return it != host_blocks.begin() && static_cast<const char*>(p) < std::prev(it)->first + std::prev(it)->second;
}

// Copies fail here, as the driver's do, when a side is device memory and the other end lies outside its block.
bool fits(const void* p, size_t bytes) {
  auto* block = block_with(p);
  return !block || static_cast<const char*>(p) + bytes <= block->first + block->second.bytes;
}

void explain_fault(int signal, siginfo_t* info, void*) {
  const char* at = static_cast<const char*>(info->si_addr);
  for (auto& [data, block] : blocks)
    if (at >= block.mapping && at < block.mapping + block.mapped) {
      std::fprintf(stderr, "CUDA emulator: byte %td of a block of %zu bytes was touched %s\n", at - data, block.bytes,
                   open_depth > 0 ? "by a kernel" : "by the host");
      if (open_depth > 0) stop("out of bounds");
      std::abort();
    }
  if (open_depth > 0 && cuda_emulator::only_ends())
    stop("an address far outside of every block: an index that overflowed");
  ::signal(signal, SIG_DFL);
}

__attribute__((constructor)) void watch_faults() {
  struct sigaction action = {};
  action.sa_sigaction = explain_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

// f(first, count) for what is copied or filled.
template <class F> void for_bytes(size_t bytes, const F& f) {
  constexpr size_t kEnd = 1 << 20;
  if (!cuda_emulator::only_ends() || bytes <= 2 * kEnd) return f(size_t(0), bytes);
  f(size_t(0), kEnd);
  f(bytes - kEnd, kEnd);
}

// CUDA C++ Programming Guide, "Environment Variables".
bool launches_wait() {
  static const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  return blocking && std::strcmp(blocking, "1") == 0;
}

bool reverse_order() {
  static const char* order = std::getenv("SF_CUDA_EMULATOR_ORDER");
  return order && std::strcmp(order, "reverse") == 0;
}

}  // namespace

cuda_emulator::OpenMemory::OpenMemory() {
  if (open_depth++ == 0) protect(PROT_READ | PROT_WRITE);
}
cuda_emulator::OpenMemory::~OpenMemory() {
  if (--open_depth > 0) return;
  for (auto& [data, block] : blocks) set_apart(block);
  protect(PROT_NONE);
}

bool cuda_emulator::is_device_memory(uintptr_t at, size_t bytes) {
  auto next = blocks.upper_bound(reinterpret_cast<char*>(at + bytes - 1));
  return next != blocks.begin() &&
         reinterpret_cast<uintptr_t>(std::prev(next)->first) + std::prev(next)->second.bytes > at;
}

// For tests: after n more allocations that succeed, all fail until n is negative.
extern "C" __attribute__((visibility("default"))) void sf_cuda_emulator_fail_allocations_after(int64_t n) {
  std::lock_guard guard(lock);
  allocations_until_failure = n;
}
// For tests: the device's memory from now on, in bytes.
extern "C" __attribute__((visibility("default"))) void sf_cuda_emulator_set_memory(size_t bytes) {
  std::lock_guard guard(lock);
  total_memory = bytes;
}
extern "C" __attribute__((visibility("default"))) size_t sf_cuda_emulator_bytes_in_use() {
  std::lock_guard guard(lock);
  return used;
}

// For tests: the number of waits (0), copies to the host (1) and from it (2) since the program began; of what was given
// to streams: kernels (3), calls of libraries (4), copies (5), fills (6); what a GPU's driver takes long for: questions
// after properties (7) and memory (8), allocations (9); whether a device has a context: 10 + its number; kernels that
// may start before the one in front of them has ended (20), those of them behind another of that kind (21); blocks of
// all kernels (22); calls of the runtime (23), those of them that ask for or choose the current device (24).
extern "C" __attribute__((visibility("default"))) int64_t sf_cuda_emulator_count(int which) {
  std::lock_guard guard(lock);
  const int64_t all[] = {counts.waits,  counts.to_host, counts.from_host,  counts.kernels,        counts.library_calls,
                         counts.copies, counts.fills,   counts.properties, counts.memory_queries, counts.allocations};
  if (which == 20 || which == 21) return which == 20 ? counts.dependent : counts.behind_dependent;
  if (which == 22) return counts.blocks;
  if (which == 23 || which == 24) return which == 23 ? counts.calls : counts.device_calls;
  if (which >= 10 && which < 10 + kDevices) return has_context(which - 10);
  return which >= 0 && which < 10 ? all[which] : -1;
}

// For tests: after that many calls of the runtime each fails until mended; < 0: none. With 719: a kernel trapped; 100:
// no GPU; 35: old driver; 999: the GPU is lost.
extern "C" __attribute__((visibility("default"))) void sf_cuda_emulator_break_after(int64_t calls, int error) {
  std::lock_guard guard(lock);
  calls_until_broken = calls;
  breaks_with = cudaError_t(error);
}
extern "C" __attribute__((visibility("default"))) int sf_cuda_emulator_is_broken() {
  std::lock_guard guard(lock);
  return broken != cudaSuccess;
}
// A new context, as in a new process: what was queued is gone, captures have ended.
extern "C" __attribute__((visibility("default"))) void sf_cuda_emulator_mend() {
  std::lock_guard guard(lock);
  run_device();  // drops it
  end_captures();
  calls_until_broken = -1;
  broken = cudaSuccess;
}

// For the stand-ins of CUDA's libraries, when they do not load or allocate, and when they do: 0, or what the runtime's
// call would have said.
extern "C" __attribute__((visibility("default"))) int sf_cuda_emulator_safe_call() {
  std::lock_guard guard(lock);
  return enter();
}
extern "C" __attribute__((visibility("default"))) int sf_cuda_emulator_unsafe_call() {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  return breaks_captures() ? failed(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

// For cudnn.cpp: all work that was given to streams is done when it returns; and a kernel "fails".
extern "C" __attribute__((visibility("default"))) void sf_cuda_emulator_finish() {
  std::lock_guard guard(lock);
  run_device();
}
extern "C" __attribute__((visibility("default"))) void sf_cuda_emulator_fail_kernel() {
  std::lock_guard guard(lock);
  break_context(cudaErrorLaunchFailure);
}

// For nvrtc.cpp: how kernels from source are compiled besides.
extern "C" __attribute__((visibility("default"))) const char* sf_cuda_emulator_compile_options() {
#ifdef SF_EMULATOR_RACES
  return "-DSF_EMULATOR_RACES -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -fsanitize=alignment "
         "-fno-sanitize-recover=alignment -nodefaultlibs";
#else
  return "";
#endif
}

// For the stand-ins of CUDA's libraries: work on a stream, done where its kernels are.
// A captured graph does it again and again: the argument is dropped when nobody will.
extern "C" __attribute__((visibility("default"))) void sf_cuda_emulator_queue(cudaStream_t stream, void (*work)(void*),
                                                                              void* argument, void (*drop)(void*)) {
  std::lock_guard guard(lock);
  ++counts.library_calls;
  queue(stream, [work, kept = std::shared_ptr<void>(argument, drop)] { work(kept.get()); });
}

cudaError_t cuda_emulator::launch(const cudaLaunchConfig_t& c, const void* function, std::function<void()> kernel) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  uint64_t threads = uint64_t(c.blockDim.x) * c.blockDim.y * c.blockDim.z;
  bool grid = c.gridDim.x > 0 && c.gridDim.x <= INT32_MAX && c.gridDim.y > 0 && c.gridDim.y <= 65535 &&
              c.gridDim.z > 0 && c.gridDim.z <= 65535;
  if (!grid || threads == 0 || threads > 1024) return failed(cudaErrorInvalidConfiguration);
  if (int d = stream_of(c.stream).device; d >= 0 && d != current_device) return failed(cudaErrorInvalidResourceHandle);
  auto most = dynamic_shared_of.find({function, current_device});
  if (c.dynamicSmemBytes > (most == dynamic_shared_of.end() ? kUnaskedShared : size_t(most->second)))
    return failed(cudaErrorInvalidValue);
  unsigned cluster = 1;
  bool dependent = false;
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    const auto& value = c.attrs[i].val;
    switch (c.attrs[i].id) {
      case cudaLaunchAttributeClusterDimension: {
        const auto& dim = value.clusterDim;
        cluster = dim.x;
        if (gpu().major < 9 || cluster == 0 || cluster > kMostOfCluster || dim.y != 1 || dim.z != 1 ||
            c.gridDim.x % cluster != 0)
          return failed(cudaErrorInvalidConfiguration);
        break;
      }
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        dependent = value.programmaticStreamSerializationAllowed != 0;
        if (dependent && gpu().major < 9) return failed(cudaErrorInvalidConfiguration);
        break;
      default: return failed(cudaErrorInvalidValue);
    }
  }
  ++counts.kernels;
  counts.blocks += int64_t(c.gridDim.x) * c.gridDim.y * c.gridDim.z;
  counts.dependent += dependent;
  counts.behind_dependent += dependent && stream_of(c.stream).lets_next_come;
  queue(c.stream,
        [grid = Grid{c.gridDim, c.blockDim, c.dynamicSmemBytes, cluster, dependent}, kernel = std::move(kernel)] {
          if (!run_grid(grid, kernel, reverse_order())) break_context(cudaErrorLaunchFailure);
        });
  stream_of(c.stream).lets_next_come = dependent;
  if (launches_wait() && !stream_of(c.stream).graph) {
    run_all(stream_of(c.stream));
    return outcome();
  }
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorInvalidKernelImage: return "cudaErrorInvalidKernelImage";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorSymbolNotFound: return "cudaErrorSymbolNotFound";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaDriverGetVersion(int* v) {
  *v = broken == cudaErrorInsufficientDriver ? 12040 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter(false)) return status;
  *n = kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  std::lock_guard guard(lock);
  ++counts.calls, ++counts.device_calls;
  *d = current_device;
  return outcome();
}
// Since CUDA 12 it makes the device's context.
cudaError_t cudaSetDevice(int d) {
  std::lock_guard guard(lock);
  if (d < 0 || d >= kDevices) return failed(cudaErrorInvalidDevice);
  ++counts.device_calls;
  current_device = d;
  return enter();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr a, int device) {
  std::lock_guard guard(lock);
  if (cudaError_t status = outcome()) return status;
  if (device < 0 || device >= kDevices) return failed(cudaErrorInvalidDevice);
  switch (a) {
    case cudaDevAttrComputeCapabilityMajor: *value = gpu().major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = gpu().minor; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = gpu().multiprocessors; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = gpu().most_shared; return cudaSuccess;
  }
  return failed(cudaErrorInvalidValue);
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute a, int value) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > gpu().most_shared)
    return failed(cudaErrorInvalidValue);
  dynamic_shared_of[{kernel, current_device}] = value;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void*, const cudaLaunchConfig_t* config) {
  unsigned size = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) size = config->attrs[i].val.clusterDim.x;
  *count = gpu().multiprocessors / int(size);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter(false)) return status;
  ++counts.properties;
  if (device < 0 || device >= kDevices) return failed(cudaErrorInvalidDevice);
  *p = {};
  std::strcpy(p->name, "emulator on the CPU, no GPU");
  p->totalGlobalMem = total_memory;
  p->major = gpu().major, p->minor = gpu().minor;
  p->multiProcessorCount = gpu().multiprocessors;
  p->maxThreadsPerMultiProcessor = gpu().threads;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (breaks_any_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  ++counts.waits;
  run_device();
  return outcome();
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  ++counts.allocations;
  if (breaks_captures()) return failed(cudaErrorStreamCaptureUnsupported);
  if (allocations_until_failure == 0) return failed(cudaErrorMemoryAllocation);
  if (allocations_until_failure > 0) --allocations_until_failure;
  // The last byte lies before the closed page as nearly as the alignment of vector accesses lets it.
  size_t body = (bytes + 15) / 16 * 16, mapped = (body + kPage - 1) / kPage * kPage + kPage;
  if (bytes + used > total_memory) return failed(cudaErrorMemoryAllocation);
  if (is_dry()) {
    void* addresses = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
    blocks[static_cast<char*>(addresses)] = {bytes, mapped, static_cast<char*>(addresses), current_device};
    used += bytes;
    *data = addresses;
    return cudaSuccess;
  }
  char* start = map_device_memory(mapped);
  if (!start) return failed(cudaErrorMemoryAllocation);
  constexpr size_t kPiece = size_t(16) << 20;
  bool is_filled = !cuda_emulator::only_ends() || bytes < kPiece;
  for (size_t at = 0; is_filled && at < mapped - kPage; at += kPiece) {
    std::memset(start + at, kFresh, std::min(kPiece, mapped - kPage - at));
    set_apart({bytes, mapped, start, current_device});
  }
  mprotect(start + mapped - kPage, kPage, PROT_NONE);
  if (open_depth == 0) mprotect(start, mapped - kPage, PROT_NONE);
  char* first = start + mapped - kPage - body;
  blocks[first] = {bytes, mapped, start, current_device};
  races::forget(start, mapped);
  used += bytes;
  *data = first;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (!data) return cudaSuccess;
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (breaks_captures()) return failed(cudaErrorStreamCaptureUnsupported);
  ++counts.waits;
  run_device();
  if (cudaError_t status = outcome()) return status;
  auto it = blocks.find(static_cast<char*>(data));
  if (it == blocks.end()) stop("cudaFree of what cudaMalloc did not give");
  Block b = it->second;
  if (!is_dry() && mprotect(b.mapping, b.mapped - kPage, PROT_READ) != 0) stop("mprotect failed");
  bool was_filled = !is_dry() && !(cuda_emulator::only_ends() && b.bytes >= size_t(16) << 20);
  auto is_fresh = [](char byte) { return static_cast<unsigned char>(byte) == kFresh; };
  if (was_filled && !(std::all_of(b.mapping, it->first, is_fresh) &&
                      std::all_of(it->first + b.bytes, b.mapping + b.mapped - kPage, is_fresh)))
    stop("bytes beside a block were written");
  used -= b.bytes;
  blocks.erase(it);
  races::forget(b.mapping, b.mapped);
  munmap(b.mapping, b.mapped);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter(false)) return status;
  auto* block = block_with(p);
  *a = {block          ? cudaMemoryTypeDevice
        : is_pinned(p) ? cudaMemoryTypeHost
                       : cudaMemoryTypeUnregistered,
        block ? block->second.device : -1};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  ++counts.memory_queries;
  *total = total_memory;
  *free = total_memory - std::min(used, total_memory);
  return cudaSuccess;
}
// Pinned memory: the host may touch it at any time, and a copy sees what is there when it runs.
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  ++counts.allocations;
  if (breaks_captures()) return failed(cudaErrorStreamCaptureUnsupported);
  if (allocations_until_failure == 0) return failed(cudaErrorMemoryAllocation);
  if (allocations_until_failure > 0) --allocations_until_failure;
  *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*data == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  host_blocks[static_cast<char*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  if (!data) return cudaSuccess;
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (breaks_captures()) return failed(cudaErrorStreamCaptureUnsupported);
  auto it = host_blocks.find(static_cast<char*>(data));
  if (it == host_blocks.end()) stop("cudaFreeHost of what cudaHostAlloc did not give");
  run_device();
  munmap(data, it->second);
  host_blocks.erase(it);
  return cudaSuccess;
}
// As "API synchronization behavior" of CUDA's manual has it: pageable memory is read before the call returns, and
// written before it returns.
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind, cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (!fits(dst, bytes) || !fits(src, bytes)) return failed(cudaErrorInvalidValue);
  bool from_pageable = !block_with(src) && !is_pinned(src), to_pageable = !block_with(dst) && !is_pinned(dst);
  if ((from_pageable || to_pageable) && breaks_capture_of(stream_of(s)))
    return failed(cudaErrorStreamCaptureUnsupported);
  counts.to_host += !block_with(dst), counts.from_host += !block_with(src), counts.waits += to_pageable,
      ++counts.copies;
  if (is_dry()) {
    if (!block_with(dst)) std::memset(dst, 0, bytes);
  } else if (from_pageable) {
    auto staged =
        std::make_shared<std::vector<char>>(static_cast<const char*>(src), static_cast<const char*>(src) + bytes);
    queue(s, [=] {
      races::begin_work();
      races::touch(dst, bytes, true);
      std::memcpy(dst, staged->data(), bytes);
    });
  } else {
    queue(s, [=] {
      races::begin_work();
      races::touch(src, bytes, false);
      races::touch(dst, bytes, true);
      for_bytes(bytes, [=](size_t from, size_t n) {
        std::memmove(static_cast<char*>(dst) + from, static_cast<const char*>(src) + from, n);
      });
    });
  }
  if (to_pageable) run_all(stream_of(s));
  return outcome();
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t bytes, cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, s);
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (!block_with(data) || !fits(data, bytes)) return failed(cudaErrorInvalidValue);
  ++counts.fills;
  queue(s, [=] {
    races::begin_work();
    races::touch(data, bytes, true);
    for_bytes(bytes, [=](size_t from, size_t n) { std::memset(static_cast<char*>(data) + from, value, n); });
  });
  return cudaSuccess;
}
