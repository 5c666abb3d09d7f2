// cuda::Kernel: a CUDA kernel from source, compiled while the program runs.
//
//   cuda::Kernel scale(R"(
//     extern "C" __global__ void scale(const float* x, float* y, float k, int n) {
//       int i = blockIdx.x * blockDim.x + threadIdx.x;
//       if (i < n) y[i] = k * x[i];
//     })", "scale");
//   scale.launch({{blocks}, {256}}, {x, y, 2.0, n});
//
// Compiled once per architecture, see backend/nvrtc.h. A launch checks the arguments against the parameters of the
// source: pointers take contiguous tensors of their dtype on one GPU, numbers take numbers that fit. It runs on the
// current stream and is not recorded: a gradient is a Function around it.
// A pointer that is not const counts as written in place.
// Copies share what is loaded. May be launched from several threads.
#pragma once
#include <array>
#include <variant>

#include "scaffolding/backend/nvrtc.h"
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/cuda_kernel/signature.h"

namespace sf::cuda {

using KernelArgument = std::variant<Tensor, bool, int64_t, double>;

struct LaunchOptions {
  std::array<int64_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};  // x, y, z
  int64_t shared_memory = 0;                                   // bytes of dynamic shared memory of a block
};

class Kernel {
 public:
  // name: of the __global__ function. options: NVRTC's. parameters: declarations such as "const float*", where the
  // source cannot tell (templates, macros). ValueError where the source has no such kernel. Nothing is compiled yet.
  Kernel(std::string source, std::string name, std::vector<std::string> options = {},
         std::optional<std::vector<std::string>> parameters = {});

  const std::string& name() const;
  const std::vector<KernelParameter>& parameters() const;
  // The binary for an architecture such as "sm_90", without a GPU.
  // RuntimeError with the source's line where it does not compile.
  std::shared_ptr<const KernelImage> compile(const std::string& arch) const;
  void load(Device device) const;  // compiles and loads for this GPU now instead of at the first launch
  // ValueError or TypeError naming the argument that does not fit; RuntimeError where there is no GPU.
  void launch(const LaunchOptions& options, const std::vector<KernelArgument>& arguments) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// The kernel of this name on this device, compiled and loaded at the first call; later calls return the same.
// ValueError when the name stands for another source on that device.
Kernel ensure_kernel(Device device, const std::string& name, const std::string& source);

}  // namespace sf::cuda
