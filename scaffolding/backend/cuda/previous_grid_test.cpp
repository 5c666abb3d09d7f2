// Kernels that start before the one in front of them has ended: which do, when, and that results are the same. In the
// emulator, which counts them and ends the program where a thread of one never waits.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/dependent_launches.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

class CudaPreviousGrid : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "no emulator: " << why;
    count_ = reinterpret_cast<int64_t (*)(int)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_count"));
    if (!count_) GTEST_SKIP() << "a GPU is here, which does not tell";
    at_first_ = dependent_launches();
  }
  void TearDown() override {
    if (count_) set_dependent_launches(at_first_);
  }

  struct Launches {
    int64_t kernels, early, behind_early;
    bool operator==(const Launches&) const = default;
  };
  template <class F> Launches launches(bool on, const F& f) {
    set_dependent_launches(on);
    const Launches before{count_(3), count_(20), count_(21)};
    f();
    return {count_(3) - before.kernels, count_(20) - before.early, count_(21) - before.behind_early};
  }

  int64_t (*count_)(int) = nullptr;
  bool at_first_ = false;
};

static std::vector<double> some_step(const Tensor& x, const Tensor& weight) {
  Tensor y = layer_norm(x * x, {48}, weight);
  return (y + x.transpose(0, 1).contiguous().transpose(0, 1)).cpu().to_vector();
}

TEST_F(CudaPreviousGrid, kernels_that_wait_start_early_where_the_setting_and_the_gpu_allow_it) {
  const bool allowed = accelerator(Device("cuda")).properties(0).major >= 9;
  Tensor x = full({4}, 2, kFloat32).cuda();
  auto three = [&] { (x + x) * x - x; };
  EXPECT_EQ(launches(false, three), (Launches{3, 0, 0}));
  arange(0, 4, 1, kInt64, Device("cuda"));  // an ordinary launch: it lets nobody come early
  EXPECT_EQ(launches(true, three), (allowed ? Launches{3, 3, 2} : Launches{3, 0, 0}));
  EXPECT_EQ(launches(true, [&] { arange(0, 4, 1, kInt64, Device("cuda")); }), (Launches{1, 0, 0}));
}

TEST_F(CudaPreviousGrid, results_are_the_same) {
  Tensor x = arange(0, 64 * 48, 1, kFloat32).reshape({64, 48}).cuda(), weight = full({48}, 3, kFloat32).cuda();
  std::vector<double> off, on;
  launches(false, [&] { off = some_step(x, weight); });
  launches(true, [&] { on = some_step(x, weight); });
  EXPECT_EQ(off, on);
}

TEST_F(CudaPreviousGrid, a_graph_captures_such_launches_and_replays_them) {
  Tensor x = full({4}, 2, kFloat32).cuda(), y;
  std::unique_ptr<cuda::CudaGraph> graph;
  const Launches captured = launches(true, [&] { graph = cuda::capture([&] { y = x * x + x; }); });
  EXPECT_EQ(captured.early > 0, accelerator(Device("cuda")).properties(0).major >= 9);
  EXPECT_EQ(graph->nodes(), 2u);
  x.fill_(3);
  graph->replay();
  EXPECT_EQ(y.cpu().to_vector(), std::vector<double>(4, 12));
}

}  // namespace sf
