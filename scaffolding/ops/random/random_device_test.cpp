// Numbers drawn on a CUDA device (or the emulator) are those of the same stream drawn on the CPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/dropout/dropout.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaRandom : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    there_ = make_generator(Device("cuda"), "cuda", 512);
    here_ = make_generator({}, "cuda", 512);
    // A GPU's own sine and logarithm differ in the last digits; the emulator's are the CPU's.
    same_mathematics_ = dlsym(RTLD_DEFAULT, "sf_cuda_emulator_queue") != nullptr;
  }
  // draw(generator, device) on both sides, then again, so that the offsets have moved alike.
  template <class F> void expect_same(const std::string& what, const F& draw, bool exact = true) {
    for (uint64_t seed : {uint64_t(0), uint64_t(1) << 40 | 5}) {
      there_->manual_seed(seed);
      here_->manual_seed(seed);
      for (int time = 0; time < 2; ++time) {
        Tensor drawn = draw(there_, Device("cuda"));
        auto got = drawn.cpu().to_vector(), want = draw(here_, Device()).to_vector();
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(exact || same_mathematics_ ? got[i] == want[i]
                                                 : std::fabs(got[i] - want[i]) <= most_apart(drawn.dtype(), want[i]))
              << what << ", seed " << seed << ", element " << i << ": " << got[i] << ", on the CPU " << want[i];
      }
      EXPECT_EQ(there_->get_state(), here_->get_state()) << what;
    }
  }
  // Where float32 values differ in the last digits: a rounding to 16 bits may go to the neighbour then.
  static double most_apart(DType t, double value) {
    double close = 1e-5 * (1 + std::fabs(value));
    if (!is_reduced(t)) return close;
    int exponent = 0;
    std::frexp(value, &exponent);  // value = f 2^exponent, 0.5 <= |f| < 1
    return std::max(close, std::ldexp(1, exponent - (t == kBFloat16 ? 8 : 11)));
  }
  Generator there_, here_;
  bool same_mathematics_ = false;
};

constexpr int64_t kCounts[] = {1, 100, 512, 2048, 2049, 7001};  // within a round of 512 threads, and beyond

TEST_F(CudaRandom, draws_the_numbers_of_the_cpu) {
  for (int64_t n : kCounts) {
    for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
      std::string what = std::string(name(t)) + " " + std::to_string(n);
      expect_same("uniform " + what,
                  [&](const Generator& g, Device d) { return uniform_(empty({n}, t, d), -2, 3, g); });
      expect_same(
          "normal " + what, [&](const Generator& g, Device d) { return normal_(empty({n}, t, d), 0.5, 2, g); }, false);
      expect_same(
          "exponential " + what, [&](const Generator& g, Device d) { return exponential_(empty({n}, t, d), 1.5, g); },
          false);
    }
    for (DType t : {kInt64, kInt32, kInt16, kUInt8, kFloat32, kBFloat16, kFloat64}) {
      std::string what = std::string(name(t)) + " " + std::to_string(n);
      expect_same("randint " + what, [&](const Generator& g, Device d) { return randint(3, 100, {n}, g, t, d); });
      expect_same("random_ " + what,
                  [&](const Generator& g, Device d) { return random_(empty({n}, t, d), {}, {}, g); });
      expect_same("bernoulli_ " + what,
                  [&](const Generator& g, Device d) { return bernoulli_(empty({n}, t, d), wrapped(0.3), g); });
    }
    expect_same("a wide range",
                [&](const Generator& g, Device d) { return randint(-5, int64_t(1) << 40, {n}, g, kInt64, d); });
    expect_same("bernoulli_ bool",
                [&](const Generator& g, Device d) { return bernoulli_(empty({n}, kBool, d), wrapped(0.7), g); });
  }
}

TEST_F(CudaRandom, fills_permuted_tensors_in_memory_order) {
  expect_same("permuted", [&](const Generator& g, Device d) {
    return uniform_(empty({5, 7, 3}, kFloat32, d).permute({2, 0, 1}), 0, 1, g);
  });
  expect_same("every other", [&](const Generator& g, Device d) {
    return uniform_(zeros({9, 8}, kFloat32, d).slice(1, 0, 8, 2), 0, 1, g);
  });
}

TEST_F(CudaRandom, dropout_keeps_what_the_cpu_keeps) {
  expect_same("dropout", [&](const Generator& g, Device d) {
    return dropout(ones({33, 40}, kFloat32, d), 0.25, true, g);
  });
}

TEST_F(CudaRandom, chances_categories_and_permutations_are_those_of_the_cpu) {
  for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    Tensor chances = to_dtype(arange(0, 90, 1, kFloat32).reshape({9, 10}) / 89.0, t);
    expect_same("bernoulli " + std::string(name(t)),
                [&](const Generator& g, Device d) { return bernoulli(chances.to(d), {}, g); });
    expect_same("bernoulli, permuted",
                [&](const Generator& g, Device d) { return bernoulli(chances.to(d).t(), {}, g); });
    expect_same("bernoulli_, broadcast", [&](const Generator& g, Device d) {
      return bernoulli_(empty({4, 9, 10}, kUInt8, d), chances.select(0, 7).to(d), g);
    });
    Tensor weights = to_dtype(arange(0, 60, 1, kFloat32).reshape({3, 20}) / 64.0, t);
    expect_same("multinomial, one",
                [&](const Generator& g, Device d) { return multinomial(weights.to(d), 1, false, g); });
    expect_same("multinomial, some",
                [&](const Generator& g, Device d) { return multinomial(weights.to(d), 7, false, g); });
    expect_same("multinomial, again and again",
                [&](const Generator& g, Device d) { return multinomial(weights.to(d), 300, true, g); });
    expect_same("multinomial of a row",
                [&](const Generator& g, Device d) { return multinomial(weights.select(0, 1).to(d), 40, true, g); });
  }
  for (int64_t n : {1, 2, 17, 3000})
    expect_same("randperm " + std::to_string(n),
                [&](const Generator& g, Device d) { return randperm(n, g, kInt64, d); });
  expect_same("randperm of 16 bits", [&](const Generator& g, Device d) { return randperm(100, g, kInt16, d); });
}

TEST_F(CudaRandom, wrong_chances_and_weights_are_refused_by_value) {
  auto refusal = [](const auto& f) {
    try {
      f();
    } catch (const ValueError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  double nan = std::nan("");
  EXPECT_NE(refusal([] { bernoulli(tensor({0.5, 1.5}).cuda()); }).find("between 0 and 1, got 1.5"), std::string::npos);
  EXPECT_NE(refusal([&] { bernoulli(tensor({0.5, nan}).cuda()); }).find("between 0 and 1, got nan"), std::string::npos);
  EXPECT_NE(refusal([] {
              multinomial(tensor({1, -2}, kFloat32).cuda(), 1);
            }).find("not negative, got -2"),
            std::string::npos);
  EXPECT_NE(refusal([&] { multinomial(tensor({1, nan}).cuda(), 1); }).find("finite"), std::string::npos);
  EXPECT_NE(refusal([] {
              multinomial(tensor({0, 0, 1, 0}, kFloat32).reshape({2, 2}).t().cuda(), 1);
            }).find("row 1 add up to 0"),
            std::string::npos);
}

TEST_F(CudaRandom, captured_draws_go_on_from_replay_to_replay) {
  Tensor chances = full({50}, 0.4, kFloat32).cuda(), weights = (arange(0, 20, 1, kFloat32) + 1.0).cuda();
  for (auto& draw : std::vector<std::function<Tensor(const Generator&, Device)>>{
           [&](const Generator&g, Device d) { return bernoulli(chances.to(d), {}, g); },
           [&](const Generator&g, Device d) { return multinomial(weights.to(d), 5, false, g); },
           [&](const Generator&g, Device d) { return multinomial(weights.to(d), 50, true, g); },
           [&](const Generator&g, Device d) { return randperm(40, g, kInt64, d); }}) {
    Tensor y;
    there_->manual_seed(11);
    here_->manual_seed(11);
    draw(here_, Device());  // the call before the captured one
    auto graph = cuda::capture([&] { y = draw(there_, Device("cuda")); });
    for (int time = 0; time < 3; ++time) {
      graph->replay();
      EXPECT_EQ(y.cpu().to_vector(), draw(here_, Device()).to_vector()) << "replay " << time;
    }
    EXPECT_EQ(there_->get_state(), here_->get_state());
  }
}

TEST_F(CudaRandom, asks_the_device_how_many_threads_a_launch_has) {
  DeviceProperties p = accelerator(Device("cuda")).properties(0);
  int64_t threads = int64_t(p.multiprocessors) * (p.threads_per_multiprocessor / 256) * 256;
  Generator own = make_generator(Device("cuda")), same = make_generator({}, "cuda", threads);
  own->manual_seed(9);
  same->manual_seed(9);
  int64_t n = 4 * threads + 5;  // two rounds
  Tensor got = randint(0, 256, {n}, own, kUInt8, Device("cuda")).cpu(), want = randint(0, 256, {n}, same, kUInt8);
  EXPECT_EQ(got.to_vector(), want.to_vector());
}

}  // namespace
}  // namespace sf
