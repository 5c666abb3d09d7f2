// A small model and what tests of streaming ask of a GPU or its emulator.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/env.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/streaming/streamer.h"
#include "scaffolding/ops/ops.h"

namespace sf::nn::streaming_test {

constexpr int64_t kWidth = 24;
inline const Device kGpu("cuda");

struct Block : Module {
  Linear a{kWidth, 2 * kWidth}, b{2 * kWidth, kWidth};
  Buffer calls{zeros({1})};
  bool counts = false;
  SF_MODULE(Block, a, b, calls)
  Tensor forward(const Tensor& x) const {
    if (counts) Tensor(calls).add_(1);
    return x + b(silu(a(x)));
  }
};

struct Net : Module {
  Linear first{kWidth, kWidth}, last{kWidth, kWidth};
  ModuleList<Block> blocks;
  bool backwards = false;
  SF_MODULE(Net, first, last, blocks)
  explicit Net(int64_t n = 8) {
    for (int64_t i = 0; i < n; ++i) blocks.emplace_back();
  }
  Tensor forward(const Tensor& input) const {
    Tensor x = first(input);
    for (size_t i = 0; i < blocks.size(); ++i) x = blocks[backwards ? blocks.size() - 1 - i : i](x);
    return last(x);
  }
};

inline int64_t block_bytes() {
  Net net(1);
  return stream_groups(net, StreamLevel::Block).group_bytes;
}

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    x_ = randn({5, kWidth});
    there_ = x_.cuda();
  }
  Accelerator& gpu() { return accelerator(kGpu); }
  std::vector<double> on_gpu(Net& net) { return net(there_).cpu().to_vector(); }
  // What the model gives where all of it is on the device.
  std::vector<double> resident(Net& net) {
    to(net, {.device = kGpu});
    auto y = on_gpu(net);
    to(net, {.device = Device()});
    return y;
  }
  // What a program asked of the emulator so far: 0, waits of the host; 3, kernels; 4, calls of libraries. 0 on a GPU.
  int64_t emulator(int which) {
    auto count = reinterpret_cast<int64_t (*)(int)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_count"));
    return count ? count(which) : 0;
  }
  // Lets so many allocations of the device pass and the next ones fail; -1: none. Null, with a reason, where that
  // cannot be asked for.
  std::function<void(int64_t)> allocations_that_pass(const char** why) {
    auto fail_after =
        reinterpret_cast<void (*)(int64_t)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_fail_allocations_after"));
    if (!fail_after) return *why = "a GPU is here, not the emulator", nullptr;
    if (env::flag("SF_CUDA_CACHE")) return *why = "the cache asks for many blocks at a time", nullptr;
    return fail_after;
  }
  autograd::NoGrad off_;
  Tensor x_, there_;
};

}  // namespace sf::nn::streaming_test
