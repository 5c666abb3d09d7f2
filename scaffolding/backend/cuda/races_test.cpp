// What the emulator of `make test-cuda-races` (tests/cuda_emulator/races.cpp) finds, shown on kernels and streams with
// one thing wrong each. Skips elsewhere.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf {

class CudaRaces : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "no emulator: " << why;
    run_ = reinterpret_cast<decltype(run_)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_run_racing_kernel"));
    count_ = reinterpret_cast<decltype(count_)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_races"));
    if (!run_) GTEST_SKIP() << "this library does not look for races";
    setenv("SF_CUDA_EMULATOR_RACES", "count", 1);
  }
  void TearDown() override { unsetenv("SF_CUDA_EMULATOR_RACES"); }

  // The races of f and of all work before it.
  template <class F> int64_t races(const F& f) {
    gpu().synchronize(0);
    int64_t before = count_();
    f();
    gpu().synchronize(0);
    return count_() - before;
  }
  Accelerator& gpu() { return accelerator(Device("cuda")); }

  int (*run_)(int, bool, float*, unsigned*, void*) = nullptr;
  int64_t (*count_)() = nullptr;
};

TEST_F(CudaRaces, finds_what_is_wrong_in_a_kernel_and_nothing_where_it_is_right) {
  const char* faults[] = {nullptr,
                          "no __syncthreads",
                          "a shuffle instead of __syncwarp",
                          "two blocks write one word",
                          "no fence in the last-block pattern",
                          "two lanes write one word"};
  for (int fault = 1; fault <= 5; ++fault) {
    Tensor data = full({64}, 1, kFloat32).cuda(), count = full({1}, 0, kInt32).cuda();
    auto start = [&](bool wrong) {
      run_(fault, wrong, data.data<float>(), reinterpret_cast<unsigned*>(count.data<int32_t>()), nullptr);
    };
    EXPECT_EQ(races([&] { start(false); }), 0) << faults[fault] << ": the right kernel";
    EXPECT_GT(races([&] { start(true); }), 0) << faults[fault];
  }
}

TEST_F(CudaRaces, vectors_at_odd_addresses_end_the_program) {
  Tensor data = full({64}, 1, kFloat32).cuda();
  EXPECT_EQ(races([&] { run_(6, false, data.data<float>(), nullptr, nullptr); }), 0);
  EXPECT_DEATH(races([&] { run_(6, true, data.data<float>(), nullptr, nullptr); }), "not aligned to 16 bytes");
}

// Both with programmatic dependent launches, whatever SF_CUDA_PDL says of our own kernels.
TEST_F(CudaRaces, device_memory_is_touched_after_the_grid_before_has_ended) {
  Tensor data = full({64}, 1, kFloat32).cuda();
  EXPECT_EQ(races([&] { run_(7, false, data.data<float>(), nullptr, nullptr); }), 0);
  EXPECT_GT(races([&] { run_(7, true, data.data<float>(), nullptr, nullptr); }), 0);
}
TEST_F(CudaRaces, a_thread_that_never_waits_for_the_grid_before_ends_the_program) {
  Tensor data = full({64}, 1, kFloat32).cuda();
  EXPECT_EQ(races([&] { run_(8, false, data.data<float>(), nullptr, nullptr); }), 0);
  EXPECT_DEATH(races([&] { run_(8, true, data.data<float>(), nullptr, nullptr); }),
               "never waited for the grid before.*thread 63 of 64");
}

TEST_F(CudaRaces, streams_need_an_event_between_them) {
  StreamHandle first = gpu().make_stream(0), second = gpu().make_stream(0);
  EventHandle event = gpu().make_event(0, false);
  Tensor x = full({1000}, 1, kFloat32).cuda();
  auto write_twice = [&](bool waits) {
    gpu().set_current_stream(0, first);
    x.fill_(2);
    gpu().record_event(0, event, first);
    gpu().set_current_stream(0, second);
    if (waits) gpu().stream_wait(0, second, event);
    x.fill_(3);
    gpu().set_current_stream(0, nullptr);
  };
  EXPECT_EQ(races([&] { write_twice(true); }), 0);
  EXPECT_GT(races([&] { write_twice(false); }), 0);
  EXPECT_EQ(races([&] { write_twice(true); }), 0) << "the host has waited in between";
  gpu().destroy_event(0, event);
  gpu().destroy_stream(0, first);
  gpu().destroy_stream(0, second);
}

// A block that was freed on one stream is another tensor's on another stream at once,
// unless the allocator knows better.
TEST_F(CudaRaces, the_allocator_hands_no_block_to_a_stream_that_does_not_wait) {
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(gpu().make_stream(0));
  EXPECT_EQ(races([&] {
              for (int round = 0; round < 60; ++round) {
                gpu().set_current_stream(0, streams[size_t(round * 7 % 3)]);
                Tensor a = full({64 + round * 13}, 1, kFloat32, Device("cuda")), b = a + a;
                gpu().set_current_stream(0, streams[size_t(round * 5 % 3)]);
                Tensor c = full({64 + round * 29 % 400}, 2, kFloat32, Device("cuda"));
                c = c * c;
              }
            }),
            0);
  Tensor kept = full({4096}, 1, kFloat32).cuda();
  gpu().set_current_stream(0, streams[0]);
  EXPECT_EQ(races([&] {
              Tensor read_elsewhere = kept + kept;
              EventHandle event = gpu().make_event(0, false);
              gpu().record_event(0, event, streams[0]);
              gpu().stream_wait(0, streams[1], event);
              gpu().set_current_stream(0, streams[1]);
              Tensor sum = read_elsewhere + kept;
              gpu().record_stream(0, read_elsewhere.data_ptr(), streams[1]);
              read_elsewhere = Tensor();
              gpu().set_current_stream(0, streams[0]);
              for (int i = 0; i < 4; ++i) kept = kept * kept;
              gpu().destroy_event(0, event);
              gpu().synchronize(0);
            }),
            0);
  gpu().set_current_stream(0, nullptr);
  for (StreamHandle s : streams) gpu().destroy_stream(0, s);
}

}  // namespace sf
