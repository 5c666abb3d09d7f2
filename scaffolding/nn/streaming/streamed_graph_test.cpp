// Captured calls of streamed models. Needs a GPU or the emulator; skips without one.
#include "scaffolding/nn/streaming/streamed_graph.h"

#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/streaming/test_net.h"
#include "scaffolding/ops/op_test.h"

namespace sf::nn {
namespace {

using namespace streaming_test;

// Blocks with several turns.
struct Twice : Net {
  SF_MODULE(Twice, first, last, blocks)
  Tensor forward(const Tensor& input) const {
    Tensor x = first(input);
    for (size_t i : {0, 1, 2, 2, 3, 4, 1, 5, 0}) x = blocks[i](x);
    return last(x);
  }
};

class CudaStreamedGraph : public OnGpu {
 protected:
  std::unique_ptr<StreamedGraph> capture(Streamer& s, Net& net) {
    return std::make_unique<StreamedGraph>(s, [&] { y_ = net(there_); });
  }
  std::vector<double> replayed(StreamedGraph& graph) {
    graph.replay();
    return y_.cpu().to_vector();
  }
  Tensor y_;
};

TEST_F(CudaStreamedGraph, gives_the_bits_of_a_call_and_copies_waits_and_allocates_no_more) {
  Net net(9);
  const auto want = resident(net);
  to(net, {.device = kGpu});
  const size_t nodes = cuda::capture([&] { net(there_); })->nodes();
  EXPECT_GT(nodes, 9u * 4);
  to(net, {.device = Device()});
  const int64_t bytes = block_bytes();
  const char* why = "";
  const auto fail_after = allocations_that_pass(&why);
  for (int64_t stay : {0, 2, 5, 9})
    for (bool use_stream : {true, false})
      for (int64_t pinned : {int64_t(1) << 30, int64_t(0)}) {
        const bool fits = stay == 9;
        Streamer s(net,
                   {.device = kGpu, .resident_bytes = stay * bytes, .pinned_bytes = pinned, .use_stream = use_stream});
        auto graph = capture(s, net);
        EXPECT_EQ(size_t(graph->nodes()), nodes) << "what a resident model's graph has";
        EXPECT_LE(graph->graphs(), 2 * (9 - stay) + 1);
        EXPECT_GE(graph->graphs(), fits ? 1 : 9 - stay);
        for (int i = 0; i < 2; ++i) EXPECT_EQ(replayed(*graph), want) << stay << use_stream << pinned;
        const StreamStatistics before = s.statistics();
        const int64_t waits = emulator(0), kernels = emulator(3) + emulator(4);
        const size_t allocated = gpu().memory(0).allocated;
        if (fail_after) fail_after(0);
        for (int i = 0; i < 4; ++i) graph->replay();
        if (fail_after) fail_after(-1);
        EXPECT_EQ(gpu().memory(0).allocated, allocated);
        EXPECT_EQ(emulator(3) + emulator(4), kernels) << "the host launches graphs alone";
        EXPECT_TRUE(!pinned || emulator(0) == waits) << "the host waited";
        EXPECT_EQ(y_.cpu().to_vector(), want);
        const StreamStatistics after = s.statistics();
        const int64_t away = stay == 5 ? 2 : 9 - stay;  // of four, two have a slot of their own
        EXPECT_EQ(after.copied_bytes - before.copied_bytes, 4 * away * bytes) << stay;
        EXPECT_EQ(after.waits, 0);
        EXPECT_EQ(on_gpu(net), want) << "and a call goes on as before";
        EXPECT_EQ(replayed(*graph), want);
        y_ = Tensor();
      }
}

TEST_F(CudaStreamedGraph, reads_what_is_in_its_inputs_now_and_takes_turns_with_others) {
  Net net(8);
  const Tensor other = randn({3, kWidth}).cuda();
  to(net, {.device = kGpu});
  const auto want_other = net(other).cpu().to_vector();
  to(net, {.device = Device()});
  Streamer s(net, {.device = kGpu});
  auto one = capture(s, net);
  Tensor z;
  StreamedGraph two(s, [&] { z = net(other); });
  for (int i = 0; i < 3; ++i) {
    there_.copy_(randn({5, kWidth}));
    const auto want = on_gpu(net);
    EXPECT_EQ(replayed(*one), want);
    two.replay();
    EXPECT_EQ(z.cpu().to_vector(), want_other);
    net.backwards = i == 1;
    on_gpu(net);
    net.backwards = false;
    EXPECT_EQ(replayed(*one), want);
    two.replay();
    const int64_t copies = s.statistics().copies;
    for (int k = 0; k < 3; ++k) one->replay(), two.replay();
    EXPECT_EQ(s.statistics().copies - copies, 6 * 8) << "the same slots for all";
  }
}

TEST_F(CudaStreamedGraph, groups_of_several_blocks_and_blocks_with_several_turns) {
  Twice net;
  to(net, {.device = kGpu});
  const auto want = net(there_).cpu().to_vector();
  to(net, {.device = Device()});
  {
    Streamer s(net, {.device = kGpu});
    StreamedGraph graph(s, [&] { y_ = net(there_); });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(replayed(graph), want);
    const int64_t copies = s.statistics().copies;
    for (int i = 0; i < 4; ++i) graph.replay();
    EXPECT_EQ(s.statistics().copies - copies, 4 * 8) << "the third block stays for its second turn";
  }
  Net plain(11);
  const auto want_plain = resident(plain);
  for (int64_t per_group : {2, 3}) {
    Streamer s(plain, {.device = kGpu, .blocks_per_group = per_group});
    auto graph = capture(s, plain);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(replayed(*graph), want_plain) << per_group;
    EXPECT_LE(graph->graphs(), 2 * (11 + per_group - 1) / per_group + 1);
  }
}

TEST_F(CudaStreamedGraph, is_of_no_use_behind_other_weights_and_gives_its_memory_back) {
  Net net(12);
  const auto want = resident(net);
  gpu().empty_cache(0);
  const size_t before = gpu().memory(0).in_graph_pools;
  {
    Streamer s(net, {.device = kGpu, .resident_bytes = 4 * block_bytes()});
    const std::vector<std::function<void()>> changes{
        [&] { net.blocks[3].a.weight.mul_(1); },
        [&] { s.offload(); },
        [&] { EXPECT_GT(s.evict(1), 0); },
        [&] {
          EXPECT_TRUE(Streamer::lay_side_by_side({net.blocks[5].b.bias, Tensor(net.blocks[5].calls)}));
        },
    };
    for (auto& change : changes) {
      auto graph = capture(s, net);
      EXPECT_EQ(replayed(*graph), want);
      EXPECT_GT(gpu().memory(0).in_graph_pools, before);
      y_ = Tensor();
      change();
      EXPECT_FALSE(graph->is_current());
      SF_EXPECT_ERROR(RuntimeError, "were written or moved since it was captured; capture it again", graph->replay());
      if (&change != &changes[0]) {
        gpu().empty_cache(0);
        EXPECT_EQ(gpu().memory(0).in_graph_pools, before);
      }
      EXPECT_EQ(on_gpu(net), want);
    }
  }
  std::unique_ptr<StreamedGraph> longer;
  {
    Streamer s(net, {.device = kGpu});
    longer = capture(s, net);
    y_ = Tensor();
  }
  EXPECT_FALSE(longer->is_current());
  SF_EXPECT_ERROR(RuntimeError, "capture it again", longer->replay());
  EXPECT_EQ(resident(net), want);
}

TEST_F(CudaStreamedGraph, what_cannot_be_captured_leaves_the_model_as_it_was) {
  Net net(6);
  const auto want = resident(net);
  Streamer s(net, {.device = kGpu});
  net.blocks[2].counts = true;
  SF_EXPECT_ERROR(RuntimeError, "blocks.2: its weights are streamed and its call writes them", capture(s, net));
  net.blocks[2].counts = false;
  EXPECT_EQ(on_gpu(net), want);
  const uint64_t hook = net.blocks[4].register_forward_hook([](Module&, const Values&, const Value& y) -> Value {
    std::get<Tensor>(y).cpu();
    return {};
  });
  SF_EXPECT_ERROR(RuntimeError, "is not allowed while a CUDA graph is captured", capture(s, net));
  net.blocks[4].remove_hook(hook);
  for (auto& block : net.blocks) EXPECT_TRUE(block.a.weight.device().is_cpu());
  EXPECT_EQ(on_gpu(net), want);
  SF_EXPECT_ERROR(RuntimeError, "a captured graph would not wait for them; a StreamedGraph does",
                  cuda::capture([&] { net(there_); }, {.warmup = 0}));
  gpu().synchronize(0);
  auto graph = capture(s, net);
  EXPECT_EQ(replayed(*graph), want);
  Net on_host(6);
  Streamer h(on_host, {.device = Device()});
  SF_EXPECT_ERROR(ValueError, "the model is on cpu, which has no graphs", capture(h, on_host));
}

TEST_F(CudaStreamedGraph, every_failed_allocation_leaves_the_model_as_it_was) {
  const char* why = "";
  const auto fail_after = allocations_that_pass(&why);
  if (!fail_after) GTEST_SKIP() << why;
  Net net(6);
  const auto want = resident(net);
  Streamer s(net, {.device = kGpu, .resident_bytes = block_bytes()});
  on_gpu(net);
  gpu().empty_cache(0);
  const size_t before = gpu().memory(0).allocated;
  int failures = 0;
  for (bool failed = true; failed; failures += failed) {
    failed = false;
    fail_after(failures);
    std::unique_ptr<StreamedGraph> graph;
    try {
      graph = capture(s, net);
    } catch (const RuntimeError&) {
      failed = true;
    }
    fail_after(-1);
    y_ = Tensor();
    EXPECT_TRUE(!failed || gpu().memory(0).allocated == before) << failures;
    EXPECT_EQ(on_gpu(net), want) << failures;
    graph.reset();
    gpu().empty_cache(0);
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace sf::nn
