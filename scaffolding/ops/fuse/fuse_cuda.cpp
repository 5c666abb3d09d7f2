// Fused functions on CUDA: a generated kernel, compiled by NVRTC once per source and GPU. Calls look it up by program
// and layout, since to build the source takes long.
#include <map>
#include <mutex>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/nvrtc.h"
#include "scaffolding/ops/fuse/cuda_source.h"

namespace sf {

namespace {

KernelHandle kernel_of(const pointwise::TracedProgram& program, const FusedLayout& layout, Device device) {
  static std::mutex mutex;
  // Programs of several shapes share a source.
  static std::map<std::pair<int, std::string>, KernelHandle> of_sources;
  static std::map<std::tuple<int, int64_t, FusedLayout>, KernelHandle> of_programs;
  std::lock_guard lock(mutex);
  const std::tuple key(device.index, program.id, layout);
  if (auto at = of_programs.find(key); at != of_programs.end()) return at->second;
  std::string source = fused_cuda_source(program, layout);
  KernelHandle& kernel = of_sources[{device.index, source}];
  if (!kernel) {
    Accelerator& gpu = accelerator(device);
    const DeviceProperties& p = gpu.properties(device.index);
    auto image = cuda::compile_kernel({source, "fused", {}}, "sm_" + std::to_string(p.major) + std::to_string(p.minor));
    kernel = gpu.load_kernel(device.index, image->cubin.data(), image->entry.c_str());
  }
  if (of_programs.size() >= 4096) of_programs.clear();  // shapes without end
  return of_programs[key] = kernel;
}

void run(const FusedCall& c) {
  constexpr int64_t kThreads = 256;
  FusedWalk walk(c);
  FusedLayout layout(c, walk);
  const Device device = c.out.device;
  KernelHandle kernel = kernel_of(*c.program, layout, device);

  const size_t count = c.program->arguments.size();
  int64_t n = c.out.numel();
  std::vector<const void*> data{c.out.data};
  for (size_t k = 0; k < count; ++k) data.push_back(c.in[k].data);
  std::vector<int64_t> places;  // struct Places of the source
  for (int d = 0; d < layout.ndim; ++d) places.push_back(walk.sizes[d]);
  for (auto& strides : walk.strides)
    for (int d = 0; d < layout.ndim; ++d) places.push_back(strides[size_t(d)]);
  std::vector<void*> arguments;
  for (auto& pointer : data) arguments.push_back(&pointer);
  arguments.push_back(&n);
  if (layout.ndim > 0) arguments.push_back(places.data());

  const int64_t each = kThreads * layout.lanes, blocks = (n + each - 1) / each;
  SF_CHECK_AS(NotSupported, blocks <= INT32_MAX, "fuse: at most ", each * INT32_MAX, " elements at once on cuda, got ",
              n);
  KernelLaunch l;
  l.grid[0] = unsigned(blocks);
  l.block[0] = unsigned(kThreads);
  accelerator(device).launch_kernel(device.index, kernel, l, arguments.data(), "fused");
}
SF_KERNEL(fused_kernel, DeviceType::CUDA, "nvrtc", 0, run, nullptr)

}  // namespace
}  // namespace sf
