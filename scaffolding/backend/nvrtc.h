// CUDA C++ compiled while the program runs, by NVIDIA's NVRTC, which is opened when it is first needed.
// Needs no GPU and no driver.
// A compiled kernel is kept in memory and as a file in SF_KERNEL_CACHE, by everything that it depends on: source, name,
// options, architecture and NVRTC's version. Files are written beside and renamed; one that is not whole, or is for
// something else, is compiled anew. Thread-safe.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace sf::cuda {

struct KernelSource {
  std::string source;  // CUDA C++
  std::string name;  // of the __global__ function, which may be extern "C", in a namespace or an instance of a template
  std::vector<std::string> options;  // of NVRTC, such as --use_fast_math or -DN=4
};

struct KernelImage {
  std::string entry;  // the function's name in the binary
  std::string cubin;
};

// arch: "sm_90". RuntimeError with the line of the source and the compiler's words where it does not compile, or saying
// that NVRTC is missing. Headers are looked for in SF_CUDA_INCLUDE_PATH and CUDARC_NVRTC_EXTRA_INCLUDE_PATHS, both
// lists with : between, then in CUDA_HOME/include, CUDA_PATH/include, beside NVRTC (in pip's packages, say) and in
// /usr/local/cuda/include, and in cccl of each; their folders tell kernels apart, not what is in them.
std::shared_ptr<const KernelImage> compile_kernel(const KernelSource& k, const std::string& arch);

int64_t kernels_compiled();  // by NVRTC in this process: what neither memory nor a file had

}  // namespace sf::cuda
