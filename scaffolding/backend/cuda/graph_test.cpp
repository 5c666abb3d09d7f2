// Captured graphs and the memory around them. Needs a GPU or the emulator; skips without one.
#include <gtest/gtest.h>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/env.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"

namespace sf {

namespace {

const Device kGpu("cuda");

class CudaGraphs : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  }
  Accelerator& gpu() { return accelerator(kGpu); }
};

std::vector<double> values(const Tensor& t) { return t.cpu().to_vector(); }

// A stream that is current for as long as this lives.
struct OnStream {
  explicit OnStream(StreamHandle s) : before(accelerator(kGpu).current_stream(0)) {
    accelerator(kGpu).set_current_stream(0, s);
  }
  ~OnStream() { accelerator(kGpu).set_current_stream(0, before); }
  StreamHandle before;
};
struct OwnStream {
  StreamHandle handle = accelerator(kGpu).make_stream(0);
  ~OwnStream() { accelerator(kGpu).destroy_stream(0, handle); }
};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_F(CudaGraphs, a_replay_computes_with_what_is_in_its_inputs_now) {
  Tensor x = arange(0, 48, 1, kFloat32).reshape({6, 8}).cuda(), w = full({8, 8}, 0.5, kFloat32).cuda(), y;
  auto f = [&] { y = (matmul(x, w) + 1.0) * x.slice(1, 0, 8); };
  auto graph = cuda::capture(f);
  for (double k : {1.0, -2.0, 7.0}) {
    Tensor next = full({6, 8}, k, kFloat32);
    x.copy_(next);
    graph->replay();
    Tensor got = y;
    std::vector<double> replayed = values(got);
    f();
    EXPECT_EQ(replayed, values(y)) << "for " << k;
    y = got;  // where the graph writes
  }
}

TEST_F(CudaGraphs, nothing_runs_while_it_is_captured) {
  Tensor x = zeros({3}).cuda();
  auto graph = cuda::capture([&] { x.copy_(x + 1.0); }, {.warmup = 0});
  EXPECT_EQ(values(x), std::vector<double>({0, 0, 0}));
  for (int i = 0; i < 3; ++i) graph->replay();
  EXPECT_EQ(values(x), std::vector<double>({3, 3, 3}));
}

TEST_F(CudaGraphs, random_numbers_go_on_as_if_the_ops_were_called) {
  for (uint64_t seed : {7u, 8u}) {
    Tensor a, b;
    auto f = [&] {
      a = randn({1000}, {}, kFloat32, kGpu);
      b = rand({3000}, {}, kFloat32, kGpu);
    };
    auto graph = cuda::capture(f);
    manual_seed(seed);
    std::vector<std::vector<double>> replayed, called;
    for (int i = 0; i < 3; ++i) {
      graph->replay();
      replayed.push_back(values(a));
      replayed.push_back(values(b));
    }
    replayed.push_back(values(randn({10}, {}, kFloat32, kGpu)));  // the generator stands where calls would have left it
    manual_seed(seed);
    for (int i = 0; i < 3; ++i) {
      f();
      called.push_back(values(a));
      called.push_back(values(b));
    }
    called.push_back(values(randn({10}, {}, kFloat32, kGpu)));
    EXPECT_EQ(replayed, called);
    EXPECT_NE(replayed[0], replayed[2]);
  }
}

TEST_F(CudaGraphs, memory_of_a_graph_stays_its_own_and_comes_back_with_it) {
  Tensor x = ones({1 << 19}).cuda(), y;
  size_t before = gpu().memory(0).allocated;
  auto graph = cuda::capture([&] { y = (x + 1.0) * (x + 2.0) - (x + 3.0); });
  gpu().empty_cache(0);
  size_t kept = gpu().memory(0).in_graph_pools, reserved = gpu().memory(0).reserved;
  EXPECT_GE(kept, size_t(4) << 20);
  for (int i = 0; i < 3; ++i) {
    // What others allocate and fill between replays is none of the graph's memory.
    Tensors others;
    for (int k = 0; k < 6; ++k) others.push_back(full({1 << 19}, 99.0, kFloat32, kGpu));
    graph->replay();
    EXPECT_EQ(y.slice(0, 0, 2).cpu().to_vector(), std::vector<double>({2, 2}));
    EXPECT_EQ(others[5].slice(0, 0, 1).cpu().to_vector(), std::vector<double>({99}));
  }
  gpu().empty_cache(0);
  EXPECT_EQ(gpu().memory(0).in_graph_pools, kept);
  EXPECT_EQ(gpu().memory(0).reserved, reserved);
  y = Tensor();
  graph.reset();
  EXPECT_EQ(gpu().memory(0).in_graph_pools, 0u);
  EXPECT_EQ(gpu().memory(0).allocated, before);
}

TEST_F(CudaGraphs, a_result_outlives_its_graph) {
  Tensor x = ones({5}).cuda(), y;
  {
    auto graph = cuda::capture([&] { y = x * 3.0; });
    graph->replay();
  }
  gpu().empty_cache(0);
  EXPECT_EQ(values(y), std::vector<double>(5, 3.0));
}

TEST_F(CudaGraphs, graphs_share_a_pool) {
  Tensor x = ones({1 << 19}).cuda(), y, z;
  cuda::GraphPool pool = cuda::new_graph_pool();
  auto first = cuda::capture([&] { y = (x + 1.0) * 2.0; }, {.pool = pool});
  size_t one = gpu().memory(0).in_graph_pools;
  auto second = cuda::capture([&] { z = (y + 1.0) * 2.0; }, {.pool = pool});
  EXPECT_LE(gpu().memory(0).in_graph_pools, 2 * one);
  x.fill_(4);
  first->replay();
  second->replay();
  EXPECT_EQ(z.slice(0, 0, 1).cpu().to_vector(), std::vector<double>({22}));
}

TEST_F(CudaGraphs, what_needs_the_host_is_refused_by_name_and_the_next_capture_works) {
  Tensor x = ones({4}).cuda(), index = zeros({2}, kInt64).cuda(), y;
  auto refused = [&](const std::string& what, const std::function<void()>& f) {
    std::string message = error_of([&] { cuda::capture(f, {.warmup = 0}); });
    EXPECT_NE(message.find(what + " is not allowed while a CUDA graph is captured"), std::string::npos) << message;
    EXPECT_EQ(cuda::CudaGraph::recording(), nullptr);
  };
  refused("a copy from or to host memory", [&] { x.cpu(); });
  refused("a copy from or to host memory", [&] { x.slice(0, 0, 1).item(); });
  refused("a copy from or to host memory", [&] { x.copy_(ones({4})); });
  refused("waiting for the device", [&] { gpu().synchronize(0); });
  refused("waiting for a stream", [&] { gpu().synchronize_stream(0, gpu().current_stream(0)); });
  refused("a result whose shape depends on values", [&] { nonzero(x); });
  EXPECT_NE(error_of([&] { cuda::capture([&] { gpu().empty_cache(0); }, {.warmup = 0}); }).find("not allowed while"),
            std::string::npos);
  auto graph = cuda::capture([&] { y = index_select(x * 5.0, 0, index); });
  graph->replay();
  EXPECT_EQ(values(y), std::vector<double>({5, 5}));
}

TEST_F(CudaGraphs, wrong_calls_say_what_to_do) {
  cuda::CudaGraph graph;
  EXPECT_NE(error_of([&] { graph.replay(); }).find("nothing was captured"), std::string::npos);
  EXPECT_NE(error_of([&] { graph.capture_begin(); }).find("the default stream cannot be captured"), std::string::npos);
  EXPECT_NE(error_of([&] { graph.capture_end(); }).find("call capture_begin first"), std::string::npos);
  EXPECT_NE(error_of([] { cuda::CudaGraph g{Device()}; }).find("needs a CUDA device"), std::string::npos);
  OwnStream side;
  OnStream on(side.handle);
  graph.capture_begin();
  cuda::CudaGraph other;
  EXPECT_NE(error_of([&] { other.capture_begin(); }).find("captures a graph already"), std::string::npos);
  graph.capture_end();
  EXPECT_NE(error_of([&] { graph.capture_begin(); }).find("call reset()"), std::string::npos);
  graph.replay();
  gpu().synchronize(0);
}

TEST_F(CudaGraphs, streams_that_join_are_captured_too) {
  OwnStream main, side;
  Tensor x = ones({100}).cuda(), y, z;
  gpu().synchronize(0);
  EventHandle fork = gpu().make_event(0, false), join = gpu().make_event(0, false);
  cuda::CudaGraph graph;
  {
    OnStream on(main.handle);
    graph.capture_begin();
    y = x + 1.0;
    gpu().record_event(0, fork, main.handle);
    gpu().stream_wait(0, side.handle, fork);
    {
      OnStream there(side.handle);
      z = y * 10.0;
    }
    gpu().record_event(0, join, side.handle);
    gpu().stream_wait(0, main.handle, join);
    z.copy_(z + y);
    graph.capture_end();
  }
  x.fill_(4);
  graph.replay();
  EXPECT_EQ(values(z), std::vector<double>(100, 55));
  {
    OnStream on(main.handle);
    graph.reset();
    graph.capture_begin();
    gpu().record_event(0, fork, main.handle);
    gpu().stream_wait(0, side.handle, fork);
    {
      OnStream there(side.handle);
      z.copy_(x);
    }
    EXPECT_THROW(graph.capture_end(), RuntimeError);  // nobody waits for the side stream
  }
  EXPECT_FALSE(graph.captured());
  gpu().destroy_event(0, fork);
  gpu().destroy_event(0, join);
}

TEST_F(CudaGraphs, memory_used_on_another_stream_is_reused_after_its_work) {
  if (!env::flag("SF_CUDA_CACHE")) GTEST_SKIP() << "SF_CUDA_CACHE=0 keeps nothing";
  OwnStream side;
  Tensor x = ones({1000}).cuda(), y;
  gpu().synchronize(0);
  void* place = x.data_ptr();
  {
    OnStream on(side.handle);
    y = x * 2.0;
  }
  gpu().record_stream(0, x.storage()->data, side.handle);
  bool still_running = !gpu().stream_done(0, side.handle);
  x = Tensor();
  Tensor other = full({1000}, 5, kFloat32, kGpu);
  if (still_running && !gpu().stream_done(0, side.handle)) {
    EXPECT_NE(other.data_ptr(), place);
  }
  gpu().synchronize_stream(0, side.handle);
  EXPECT_EQ(y.cpu().to_vector(), std::vector<double>(1000, 2.0));
  if (other.data_ptr() != place) {  // a GPU may be done so soon that `other` has it
    EXPECT_EQ(full({1000}, 6, kFloat32, kGpu).data_ptr(), place);
  }
  EXPECT_THROW(gpu().record_stream(0, &place, side.handle), ValueError);
}

TEST_F(CudaGraphs, large_blocks_are_split_and_merged) {
  if (!env::flag("SF_CUDA_CACHE")) GTEST_SKIP() << "SF_CUDA_CACHE=0 splits nothing";
  gpu().empty_cache(0);
  constexpr int64_t kMega = (1 << 20) / 4;  // floats
  auto block = [](int64_t mega) { return empty({mega * kMega}, kFloat32, kGpu); };
  MemoryStatistics before = gpu().memory(0);
  Tensor a = block(12), b;
  void* first = a.data_ptr();
  a = Tensor();
  a = block(4), b = block(4);
  EXPECT_EQ(a.data_ptr(), first);
  EXPECT_EQ(gpu().memory(0).reserved, before.reserved + (12u << 20));
  EXPECT_EQ(gpu().memory(0).split_free, before.split_free + (4u << 20));
  a = Tensor();
  EXPECT_EQ(gpu().memory(0).split_free, before.split_free + (8u << 20));
  EXPECT_EQ(gpu().memory(0).largest_free_block, 4u << 20);  // in two pieces: b lies between
  b = Tensor();
  EXPECT_EQ(gpu().memory(0).split_free, before.split_free);
  EXPECT_EQ(gpu().memory(0).largest_free_block, 12u << 20);
  EXPECT_EQ(block(12).data_ptr(), first);
  gpu().empty_cache(0);
  EXPECT_EQ(gpu().memory(0).reserved, before.reserved);
}

TEST_F(CudaGraphs, what_a_stream_had_goes_to_the_next_one) {
  if (!env::flag("SF_CUDA_CACHE")) GTEST_SKIP() << "SF_CUDA_CACHE=0 keeps nothing";
  Tensor x = ones({100}).cuda(), y;
  auto on_a_stream_of_its_own = [&] {
    OwnStream side;
    OnStream on(side.handle);
    y = x * 2.0;
  };
  on_a_stream_of_its_own();
  on_a_stream_of_its_own();  // y's new value is there before the old one goes
  on_a_stream_of_its_own();
  cuda::capture([&] { y = x * 3.0; });
  size_t reserved = gpu().memory(0).reserved;
  for (int i = 0; i < 10; ++i) {
    on_a_stream_of_its_own();
    auto graph = cuda::capture([&] { y = x * 3.0; });
    graph->replay();
    EXPECT_EQ(values(y), std::vector<double>(100, 3.0));
    y = Tensor();
  }
  gpu().synchronize(0);
  EXPECT_LE(gpu().memory(0).reserved, reserved);
}

TEST_F(CudaGraphs, out_of_memory_says_who_has_it) {
  Tensor large = empty({3 << 20}, kFloat32, kGpu);
  size_t failures = gpu().memory(0).out_of_memory;
  std::string message = error_of([] { empty({int64_t(1) << 44}, kFloat32, kGpu); });
  for (const char* part : {"out of memory: 67108864.0 MiB asked for", "tensors of this process (the largest: 12.0 MiB",
                           "in free blocks", "Try a smaller batch"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(gpu().memory(0).out_of_memory, failures + 1);
}

}  // namespace sf
