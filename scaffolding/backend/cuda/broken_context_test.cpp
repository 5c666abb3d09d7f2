// A kernel that fails breaks the context: every later call of CUDA fails, whichever it is, as where the GPU or its
// driver is gone. That must be exceptions, out of every destructor on the way, and a process that goes on with the CPU.
// On the emulator alone, which can be mended.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/copy/pinned.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {

namespace {

template <class F> F* emulators(const char* name) { return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name)); }

class CudaBrokenContext : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "no emulator: " << why;
    break_after_ = emulators<void(int64_t, int)>("sf_cuda_emulator_break_after");
    is_broken_ = emulators<int()>("sf_cuda_emulator_is_broken");
    mend_ = emulators<void()>("sf_cuda_emulator_mend");
    if (!mend_) GTEST_SKIP() << "a GPU is here, not the emulator";
  }
  void TearDown() override {
    if (mend_) mend_();
  }
  void break_each_call(int error);
  void name_what_was_queued();
  void (*break_after_)(int64_t, int) = nullptr;
  int (*is_broken_)() = nullptr;
  void (*mend_)() = nullptr;
};

Accelerator& gpu() { return accelerator(Device("cuda")); }

// Everything that owns something of the GPU's, and is unwound where a call fails.
std::vector<double> step() {
  Tensor host = pin_memory(ones({4, 6}, kFloat32)), x = host.to(Device("cuda")).requires_grad_();
  Tensor w = full({6, 6}, 0.5, kFloat32, Device("cuda")), filter = ones({1, 1, 3, 3}, kFloat32, Device("cuda"));
  Tensor y = matmul(x, w) + rand({4, 6}, {}, kFloat32, Device("cuda"));
  y = index_select(y, 0, tensor({0.0, 3.0, 1.0, 1.0}, kInt64).to(Device("cuda")));
  y = conv2d(y.reshape({1, 1, 4, 6}), filter, {}, {1}, ConvPadding(Shape{1}));
  sum(y).backward();
  EventHandle event = gpu().make_event(0, true);
  gpu().record_event(0, event, gpu().current_stream(0));
  gpu().destroy_event(0, event);
  Tensor later;
  {
    cuda::SideStream side{Device("cuda")};
    later = w * 2.0;
    gpu().record_stream(0, w.data_ptr(), gpu().current_stream(0));
  }
  Tensor z;
  auto graph = cuda::capture([&] { z = matmul(later, w) + 1.0; });
  graph->replay();
  return (sum(z) + sum(x.grad())).cpu().to_vector();
}

void CudaBrokenContext::break_each_call(int error) {
  step();  // libraries are loaded, tables made
  int failures = 0;
  for (int64_t n = 0;; ++n) {
    break_after_(n, error);
    std::string said;
    try {
      step();
    } catch (const Error& e) {
      said = e.what();
    }
    const bool was_broken = is_broken_();
    if (was_broken) {
      // Nothing of a broken context comes back, and it says why; the CPU goes on. Where the last of all calls was the
      // one that broke, the step itself may have succeeded.
      EXPECT_THROW(gpu().synchronize(0), RuntimeError);
      EXPECT_THROW(ones({3}, kFloat32).to(Device("cuda")), RuntimeError);
      EXPECT_EQ(sum(ones({3}, kFloat32)).to_vector(), std::vector<double>({3}));
      EXPECT_TRUE(said.empty() || said.find("CUDA error") != said.npos || said.find("cuDNN") != said.npos ||
                  said.find("cuBLASLt") != said.npos)
          << said;
      failures += !said.empty();
    }
    mend_();
    if (!was_broken) {
      EXPECT_EQ(said, "");
      break;
    }
  }
  EXPECT_GT(failures, 60);
  EXPECT_EQ(step().size(), 1u);
}

// What the error of a wait says was queued, where a kernel fails that runs before it.
void CudaBrokenContext::name_what_was_queued() {
  const auto fail_kernel = emulators<void()>("sf_cuda_emulator_fail_kernel");
  auto queued = [&] {
    fail_kernel();
    std::string said;
    try {
      gpu().synchronize(0);
    } catch (const RuntimeError& e) {
      said = e.what();
    }
    mend_();
    gpu().synchronize(0);
    // Behind the op that noticed: the wait, or the question for the current device before it.
    const std::string error = ": CUDA error: cudaErrorLaunchFailure (cudaErrorLaunchFailure)";
    EXPECT_NE(said.find(error), said.npos) << said;
    said.erase(0, said.find(error) == said.npos ? said.size() : said.find(error) + error.size());
    const std::string list = "; queued since the last synchronisation: ";
    return said.starts_with(list) ? said.substr(list.size()) : said;
  };
  Tensor x = full({4, 4}, 0.5, kFloat32, Device("cuda"));
  gpu().synchronize(0);
  EXPECT_EQ(queued(), "");
  Tensor y = exp(exp(matmul(x, x)));
  EXPECT_EQ(queued(), "matmul, exp (2 times) (newest last)");
  y = exp(x);
  y.cpu();
  EXPECT_EQ(queued(), "");
  {  // the wait for a stream forgets its own work alone
    cuda::SideStream side{Device("cuda")};
    y = sin(x);
    StreamHandle stream = gpu().current_stream(0);
    gpu().set_current_stream(0, nullptr);
    Tensor z = exp(x);
    gpu().synchronize_stream(0, nullptr);
    gpu().set_current_stream(0, stream);
    EXPECT_EQ(queued(), "sin");
  }
  auto graph = cuda::capture([&] { y = sin(exp(exp(matmul(x, x)))); });
  gpu().synchronize(0);
  graph->replay();
  EXPECT_EQ(queued(), "CUDAGraph.replay of matmul, exp (2 times), sin");
  for (int i = 0; i < 3000; ++i) y = exp(x);  // more than are kept
  y = sin(x);
  EXPECT_EQ(queued(), "exp (1023 times), sin (newest last)");
}

}  // namespace

// In a process of its own: what a broken context held is lost to it for good.
class CudaErrors : public CudaBrokenContext, public testing::WithParamInterface<int> {};

TEST_P(CudaErrors, whichever_call_fails_first_it_is_an_exception) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        break_each_call(GetParam());
        std::_Exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}
// cudaErrorLaunchFailure, NoDevice, InsufficientDriver, Unknown
INSTANTIATE_TEST_SUITE_P(Each, CudaErrors, testing::Values(719, 100, 35, 999));

// In a process of its own too.
TEST_F(CudaBrokenContext, the_error_names_what_was_queued_since_the_last_synchronisation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        name_what_was_queued();
        std::_Exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(CudaBrokenContext, an_index_out_of_range_is_left_out_and_the_next_wait_names_the_op) {
  Tensor x = arange(0, 15, 1, kFloat32).reshape({5, 3}).cuda(), at = tensor({0.0, 5.0}, kInt64).cuda();
  auto error_of = [](const auto& f) {
    try {
      f();
    } catch (const IndexError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  Tensor y = index_select(x, 0, at);
  EXPECT_EQ(error_of([&] { y.cpu(); }).find("index_select: index 5 is out of range for dimension 0 of size 5"), 0u);
  EXPECT_EQ(error_of([&] { y.cpu(); }), "no error");  // said once
  y = gather(x, 0, at.reshape({2, 1}));
  EXPECT_EQ(error_of([] { gpu().synchronize(0); }).find("gather: index 5"), 0u);
  Tensor written = index_put(x, {at}, zeros({2, 3}, kFloat32).cuda());
  EXPECT_EQ(error_of([] { gpu().synchronize(0); }).find("index_put: index 5"), 0u);
  EXPECT_EQ(written.cpu().to_vector(), index_fill(x.cpu(), 0, tensor({0.0}, kInt64), 0.0).to_vector());
  written = scatter(x, 0, at.reshape({2, 1}), full({2, 1}, -1, kFloat32).cuda());
  EXPECT_EQ(error_of([] { gpu().synchronize(0); }).find("scatter: index 5"), 0u);
  EXPECT_EQ(written.cpu().to_vector()[0], -1);

  // In a graph the replay goes on, the call that waits says it, and so does the next replay that is wrong.
  at.copy_(tensor({0.0, 1.0}, kInt64));
  auto graph = cuda::capture([&] { y = index_select(x, 0, at); });
  for (double wrong : {7.0, -1.0}) {
    at.copy_(tensor({4.0, wrong}, kInt64));
    graph->replay();
    EXPECT_EQ(error_of([] { gpu().synchronize(0); }).find("index_select: index " + std::to_string(int(wrong))), 0u);
    at.copy_(tensor({4.0, 1.0}, kInt64));
    graph->replay();
    EXPECT_EQ(y.cpu().to_vector(), std::vector<double>({12, 13, 14, 3, 4, 5}));
  }
}

}  // namespace sf
