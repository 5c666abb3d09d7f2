// Streamed models beside resident ones. What has Cuda in its name needs a GPU or the emulator; skips without one.
#include "scaffolding/nn/streaming/streamer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/adapter.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/nn/streaming/test_net.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::nn {
namespace {

using namespace streaming_test;

struct Wide : Module {
  Linear a{512, 512}, b{512, 512};
  SF_MODULE(Wide, a, b)
  Tensor forward(const Tensor& x) const { return b(a(x)); }
};

struct Outer : Module {
  ModuleList<Net> nets;
  ModuleList<Linear> single;
  SF_MODULE(Outer, nets, single)
};

TEST(StreamGroups, are_the_innermost_numbered_children_of_more_than_one_layer) {
  Outer outer;
  outer.nets.emplace_back(2), outer.nets.emplace_back(3), outer.single.emplace_back(3, 3);
  auto names = [&](StreamLevel level, int64_t per_group) {
    std::string all;
    for (auto& g : stream_groups(outer, level, per_group).groups)
      all += g.name + " " + std::to_string(g.owners.size()) + ", ";
    return all;
  };
  EXPECT_EQ(names(StreamLevel::Block, 1),
            "nets.0.blocks.0 1, nets.0.blocks.1 1, nets.1.blocks.0 1, nets.1.blocks.1 1, nets.1.blocks.2 1, ");
  EXPECT_EQ(names(StreamLevel::Block, 2), "nets.0.blocks.0 2, nets.1.blocks.0 2, nets.1.blocks.2 1, ");
  const StreamGroups found = stream_groups(outer, StreamLevel::Block);
  EXPECT_EQ(found.kept.size(), 2u * 4 + 2);
  EXPECT_EQ(found.groups[0].bytes, block_bytes());
  SF_EXPECT_ERROR(ValueError, "num_blocks_per_group must be at least 1, got 0",
                  stream_groups(outer, StreamLevel::Block, 0));
}

TEST(StreamGroups, only_in_modules_of_these_names) {
  Outer outer;
  outer.nets.emplace_back(2), outer.nets.emplace_back(3), outer.single.emplace_back(3, 3);
  auto names = [&](const std::vector<std::string>& only) {
    std::string all;
    for (auto& g : stream_groups(outer, StreamLevel::Block, 1, only).groups) all += g.name + ", ";
    return all;
  };
  EXPECT_EQ(names({"nets.0", "single.0"}), "nets.0.blocks.0, nets.0.blocks.1, single.0, ");
  EXPECT_EQ(names({"nets.1.blocks.2", "nets.1.last"}), "nets.1.blocks.2, nets.1.last, ");
  EXPECT_EQ(names({"nets.0.last", "nets.0.last"}), "nets.0.last, ");
  SF_EXPECT_ERROR(ValueError, "has no module 'net'", names({"net"}));
  Outer empty;
  SF_EXPECT_ERROR(ValueError, "'single' of Outer has no weights",
                  stream_groups(empty, StreamLevel::Block, 1, {"single"}));
}

TEST(StreamGroups, weights_of_two_blocks_stay) {
  Net net(3);
  net.blocks[2].a.weight = net.blocks[0].a.weight;
  const StreamGroups found = stream_groups(net, StreamLevel::Block);
  EXPECT_EQ(found.groups[0].tensors.size(), 4u);
  EXPECT_EQ(found.groups[1].tensors.size(), 5u);
  EXPECT_EQ(found.kept.size(), 5u);
}

class StreamerOnCpu : public io::TestFolder {
 protected:
  // The model's weights as pages of a file.
  void map(Net& net) {
    std::map<std::string, Tensor> state;
    for (auto& [name, t] : state_dict(net)) state[name] = t;
    io::save_safetensors(state, path("net.safetensors"));
    load_state_dict(net, io::load_checkpoint(path("net.safetensors")), {.assign = true});
  }
  // Bytes of the tensor's pages that are in this process's memory.
  static size_t present(const Tensor& t) {
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(t.data_ptr());
    const uintptr_t from = (begin + page - 1) / page, to = (begin + t.nbytes()) / page;
    const int map = open("/proc/self/pagemap", O_RDONLY);
    size_t bytes = 0;
    for (uintptr_t at = from; at < to; ++at) {
      uint64_t entry = 0;
      if (pread(map, &entry, 8, off_t(at * 8)) == 8) bytes += entry >> 63 ? page : 0;
    }
    close(map);
    return bytes;
  }
};

TEST_F(StreamerOnCpu, gives_the_bits_of_a_model_that_is_not_streamed) {
  Net net(6);
  map(net);
  const Tensor x = randn({5, kWidth});
  autograd::NoGrad off;
  const Tensor want = net(x);
  Streamer streamer(net, {.device = Device()});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(net(x).to_vector(), want.to_vector());
  EXPECT_EQ(streamer.statistics().groups, 6);
  EXPECT_EQ(streamer.statistics().copied_bytes, (2 * 6 + 3) * block_bytes());  // three of the next call
}

TEST_F(StreamerOnCpu, releases_the_pages_behind_a_block_and_keeps_those_of_residents) {
  Sequential net;
  constexpr size_t kBlocks = 5;
  for (size_t i = 0; i < kBlocks; ++i) net.emplace_back<Wide>();
  std::map<std::string, Tensor> state;
  for (auto& [name, t] : state_dict(net)) state[name] = t;
  io::save_safetensors(state, path("wide.safetensors"));
  load_state_dict(net, io::load_checkpoint(path("wide.safetensors")), {.assign = true});
  autograd::NoGrad off;
  const Tensor x = randn({2, 512});
  const auto want = net(x).to_vector();
  auto weight = [&](size_t i) { return static_cast<Wide&>(net[i]).a.weight; };
  const size_t whole = present(weight(0));
  if (!whole) GTEST_SKIP() << "the kernel does not say which pages are there";
  const int64_t one = stream_groups(net, StreamLevel::Block).largest;
  Streamer streamer(net, {.device = Device(), .resident_bytes = one});
  ASSERT_EQ(streamer.resident_names().size(), 1u);
  EXPECT_EQ(net(x).to_vector(), want);
  for (size_t i = 0; i < kBlocks; ++i) {
    const bool stays = streamer.resident_names()[0] == std::to_string(i);
    EXPECT_EQ(present(weight(i)), stays ? whole : 0) << i;
  }
}

TEST_F(StreamerOnCpu, weights_that_were_written_count) {
  Net net(6);
  map(net);
  autograd::NoGrad off;
  const Tensor x = randn({5, kWidth});
  net.blocks[1].a.weight.mul_(2);  // the file has the old ones
  const auto want = net(x).to_vector();
  Streamer streamer(net, {.device = Device()});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(net(x).to_vector(), want);
  net.blocks[0].a.weight.mul_(2);  // one that was read ahead
  net.blocks[4].a.weight.mul_(0.5);
  const auto then = net(x).to_vector();
  EXPECT_NE(then, want);
  EXPECT_EQ(net(x).to_vector(), then);
  Net copy(6);
  std::map<std::string, Tensor> state;
  for (auto& [name, t] : state_dict(net)) state[name] = t.clone();
  load_state_dict(copy, state);
  EXPECT_EQ(copy(x).to_vector(), then);
}

TEST_F(StreamerOnCpu, what_a_call_writes_is_kept) {
  Net net(6);
  map(net);
  autograd::NoGrad off;
  for (auto& block : net.blocks) block.counts = true;
  const Tensor x = randn({5, kWidth});
  {
    Streamer streamer(net, {.device = Device(), .resident_bytes = 2 * block_bytes()});
    for (int i = 0; i < 3; ++i) net(x);
    EXPECT_GT(streamer.statistics().written_back, 0);
  }
  for (auto& block : net.blocks) EXPECT_EQ(block.calls.item(), 3);
}

TEST_F(StreamerOnCpu, weights_of_no_file_stay) {
  Net net(6);
  autograd::NoGrad off;
  Streamer streamer(net, {.device = Device()});
  EXPECT_EQ(streamer.statistics().resident_groups, 6);
  EXPECT_EQ(streamer.statistics().slot_bytes, 0);
}

TEST_F(StreamerOnCpu, a_file_that_shrinks_or_is_written_is_an_error) {
  Net net(6);
  map(net);
  autograd::NoGrad off;
  const Tensor x = randn({5, kWidth});
  Streamer streamer(net, {.device = Device()});
  net(x);
  const auto size = std::filesystem::file_size(path("net.safetensors"));
  { std::ofstream(path("net.safetensors"), std::ios::app | std::ios::binary) << "more"; }
  SF_EXPECT_ERROR(RuntimeError, "was written since its weights were mapped; load the model again", net(x));
  std::filesystem::resize_file(path("net.safetensors"), size / 2);
  SF_EXPECT_ERROR(RuntimeError, "when its weights were mapped; put the whole file back", net(x));
  std::filesystem::resize_file(path("net.safetensors"), size);  // so that what is left can be walked
}

class CudaStreamer : public OnGpu {};

TEST_F(CudaStreamer, gives_the_bits_of_a_resident_model_and_copies_what_is_away_once_a_call) {
  Net net(9);
  const auto want = resident(net);
  const int64_t bytes = block_bytes();
  for (int64_t stay : {0, 1, 4, 6, 9}) {
    for (bool use_stream : {true, false}) {
      Streamer s(net, {.device = kGpu, .resident_bytes = stay * bytes, .use_stream = use_stream});
      const bool fits = 9 - stay <= 3;  // in the memory of slots
      EXPECT_EQ(s.statistics().resident_groups, fits ? 9 : stay);
      for (int i = 0; i < 2; ++i) EXPECT_EQ(on_gpu(net), want) << stay;
      const StreamStatistics before = s.statistics();
      const int64_t waits = emulator(0);
      Tensor y;
      for (int i = 0; i < 4; ++i) y = net(there_);
      const bool frees = !env::flag("SF_CUDA_CACHE");  // memory is given back at once, which waits
      EXPECT_TRUE(frees || emulator(0) == waits) << "the host waited";
      EXPECT_EQ(y.cpu().to_vector(), want);
      const StreamStatistics after = s.statistics();
      EXPECT_EQ(after.copied_bytes - before.copied_bytes, fits ? 0 : 4 * (9 - stay) * bytes) << stay;
      EXPECT_EQ(after.misses, before.misses);
      EXPECT_EQ(after.written_back, 0);
      EXPECT_EQ(after.waits, 0);
    }
    EXPECT_TRUE(net.first.weight.device().is_cpu());
  }
}

TEST_F(CudaStreamer, keeps_three_slots_and_what_stays) {
  Net net(9);
  const int64_t bytes = block_bytes();
  gpu().empty_cache(0);
  const size_t before = gpu().memory(0).allocated, pinned = gpu().pinned_memory().allocated;
  {
    Streamer s(net, {.device = kGpu, .resident_bytes = 2 * bytes});
    const StreamStatistics now = s.statistics();
    EXPECT_EQ(now.slot_bytes % 3, 0);
    EXPECT_GE(now.slot_bytes, 3 * bytes);
    EXPECT_LT(now.slot_bytes, 3 * (bytes + 5 * 256));
    EXPECT_LT(gpu().memory(0).allocated - before, size_t(now.slot_bytes + now.resident_bytes) + 30 * 512);
    EXPECT_EQ(int64_t(gpu().pinned_memory().allocated - pinned), now.pinned_bytes);
    s.offload();
    EXPECT_EQ(gpu().memory(0).allocated, before);
    EXPECT_FALSE(s.is_loaded());
    on_gpu(net);
    EXPECT_TRUE(s.is_loaded());
  }
  EXPECT_EQ(gpu().memory(0).allocated, before);
}

TEST_F(CudaStreamer, weights_that_are_away_are_in_host_memory_and_may_be_written) {
  Net net(6);
  resident(net);
  Streamer s(net, {.device = kGpu});
  on_gpu(net);
  for (auto& [name, t] : state_dict(net)) EXPECT_EQ(t.device().is_cpu(), name.find("blocks") == 0) << name;
  // In place, of one that was fetched early; and by other memory.
  net.blocks[0].a.weight.mul_(2);
  load_state_dict(net.blocks[1].b, {{"weight", ones({kWidth, 2 * kWidth})}, {"bias", ones({kWidth})}},
                  {.assign = true});
  const auto got = on_gpu(net);
  EXPECT_EQ(on_gpu(net), got);
  Net copy(6);
  std::map<std::string, Tensor> state;
  for (auto& [name, t] : state_dict(net)) state[name] = t.cpu();
  load_state_dict(copy, state);
  EXPECT_EQ(got, resident(copy));
}

TEST_F(CudaStreamer, what_a_call_writes_is_kept) {
  Net net(6);
  for (auto& block : net.blocks) block.counts = true;
  {
    Streamer s(net, {.device = kGpu, .resident_bytes = 2 * block_bytes()});
    for (int i = 0; i < 3; ++i) on_gpu(net);
    EXPECT_GT(s.statistics().written_back, 0);
  }
  for (auto& block : net.blocks) EXPECT_EQ(block.calls.item(), 3);
}

TEST_F(CudaStreamer, another_order_of_calls_costs_time_only) {
  Net net(8);
  net.backwards = true;
  const auto backwards = resident(net);
  net.backwards = false;
  const auto want = resident(net);
  {
    Streamer s(net, {.device = kGpu});
    net.backwards = true;
    EXPECT_EQ(on_gpu(net), backwards);
    const StreamStatistics first = s.statistics();
    EXPECT_EQ(on_gpu(net), backwards);
    EXPECT_EQ(s.statistics().misses, first.misses) << "the second call begins as the first did";
    EXPECT_EQ(s.statistics().copied_bytes - first.copied_bytes, 8 * block_bytes());
    net.backwards = false;
  }
  Streamer s(net, {.device = kGpu});
  EXPECT_EQ(on_gpu(net), want);
  net.backwards = true;
  EXPECT_EQ(on_gpu(net), backwards);
  on_gpu(net);
  const int64_t misses = s.statistics().misses;
  EXPECT_EQ(on_gpu(net), backwards);
  EXPECT_EQ(s.statistics().misses, misses) << "it was learned";
}

TEST_F(CudaStreamer, pins_no_more_than_it_may) {
  Net net(8);
  const auto want = resident(net);
  const int64_t bytes = block_bytes();
  for (int64_t budget : {int64_t(0), 1 * bytes, 3 * bytes + 30000, 6 * bytes + 30000, int64_t(1) << 30}) {
    Streamer s(net, {.device = kGpu, .pinned_bytes = budget});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(on_gpu(net), want) << budget;
    EXPECT_LE(s.statistics().pinned_bytes, budget);
    EXPECT_GE(s.statistics().pinned_bytes, budget > 4 * bytes ? 2 * bytes : 0);
  }
}

TEST_F(CudaStreamer, weights_lie_side_by_side_in_slots_where_that_was_asked_for) {
  Net net(6);
  const auto want = resident(net);
  for (int64_t budget : {int64_t(0), int64_t(1) << 30}) {
    for (int64_t stay : {int64_t(0), int64_t(1) << 30}) {
      Streamer s(net, {.device = kGpu, .resident_bytes = stay, .pinned_bytes = budget});
      EXPECT_EQ(on_gpu(net), want);
      const void* home = net.blocks[1].b.bias.data_ptr();
      for (auto& block : net.blocks) {
        const Tensors row{block.b.bias, Tensor(block.calls)};
        EXPECT_TRUE(Streamer::lay_side_by_side(row) && Streamer::lay_side_by_side(row));
      }
      EXPECT_FALSE(Streamer::lay_side_by_side({randn({2})}));
      const bool may_move = budget || stay;
      EXPECT_TRUE(may_move || net.blocks[1].b.bias.data_ptr() == home) << "no memory of the host is taken";
      int seen = 0;
      const uint64_t hook = net.blocks[1].register_forward_pre_hook([&](Module& m, const Values&) -> Values {
        auto& block = static_cast<Block&>(m);
        EXPECT_EQ(block.b.bias.storage(), block.calls.storage());
        EXPECT_EQ(block.calls.storage_offset() - block.b.bias.storage_offset(), kWidth);
        ++seen;
        return {};
      });
      for (int i = 0; i < 2; ++i) EXPECT_EQ(on_gpu(net), want);
      EXPECT_EQ(seen, 2);
      net.blocks[1].remove_hook(hook);
      s.offload();
      EXPECT_EQ(on_gpu(net), want);
    }
  }
  EXPECT_EQ(resident(net), want);
}

TEST_F(CudaStreamer, hooks_and_adapters_go_on) {
  struct Twice final : Adapter {
    Tensor apply(const Tensor&, const std::function<Tensor()>& bare) const override { return bare() * 2.0; }
    void each_tensor(const std::function<void(const Tensor&)>&) const override {}
  };
  Net net(6);
  int seen = 0;
  net.blocks[4].a.adapt(std::make_shared<Twice>());
  net.blocks[3].register_forward_hook([&](Module& m, const Values&, const Value& y) -> Value {
    ++seen;
    EXPECT_TRUE(static_cast<Block&>(m).a.weight.device().is_cuda());
    return std::get<Tensor>(y) * 3.0;
  });
  const auto want = resident(net);
  Streamer s(net, {.device = kGpu});
  EXPECT_EQ(on_gpu(net), want);
  EXPECT_EQ(seen, 2);
}

TEST_F(CudaStreamer, a_call_that_throws_leaves_weights_at_home) {
  Net net(6);
  const auto want = resident(net);
  Streamer s(net, {.device = kGpu});
  const uint64_t hook = net.blocks[2].register_forward_hook(
      [](Module&, const Values&, const Value&) -> Value { fail<RuntimeError>("on purpose"); });
  SF_EXPECT_ERROR(RuntimeError, "on purpose", on_gpu(net));
  EXPECT_TRUE(net.blocks[2].a.weight.device().is_cpu());
  net.blocks[2].remove_hook(hook);
  EXPECT_EQ(on_gpu(net), want);
}

TEST_F(CudaStreamer, evict_makes_room_and_keeps_the_bits) {
  Net net(12);
  const auto want = resident(net);
  const int64_t bytes = block_bytes();
  for (int64_t pinned : {int64_t(0), int64_t(1) << 30}) {
    for (bool loaded : {true, false}) {
      gpu().empty_cache(0);
      const auto allocated = [&] { return int64_t(gpu().memory(0).allocated); };
      Streamer s(net, {.device = kGpu, .resident_bytes = 12 * bytes, .pinned_bytes = pinned});
      EXPECT_EQ(on_gpu(net), want);
      EXPECT_EQ(s.evict(0), 0);
      EXPECT_EQ(s.statistics().resident_groups, 12);
      if (!loaded) s.offload();
      const int64_t before = allocated();
      const int64_t slots = 3 * (bytes + 5 * 256);
      int64_t freed = s.evict(bytes);
      EXPECT_GE(freed, bytes);
      EXPECT_LT(freed, 2 * bytes);
      EXPECT_EQ(s.is_loaded(), loaded);
      EXPECT_TRUE(!loaded || std::abs(before - allocated() - freed) <= 12 * 5 * 512) << "as it was allocated";
      EXPECT_EQ(s.statistics().resident_groups, 7) << "a block more, and those that the slots take the place of";
      for (int i = 0; i < 3; ++i) EXPECT_EQ(on_gpu(net), want);
      EXPECT_LE(s.statistics().slot_bytes, slots);
      freed = s.evict(3 * bytes);
      EXPECT_EQ(freed, 3 * bytes) << "slots are there";
      for (int i = 0; i < 3; ++i) EXPECT_EQ(on_gpu(net), want);
      EXPECT_EQ(s.evict(100 * bytes), 4 * bytes);
      EXPECT_EQ(s.evict(1), 0);
      const StreamStatistics then = s.statistics();
      for (int i = 0; i < 3; ++i) EXPECT_EQ(on_gpu(net), want);
      on_gpu(net);
      EXPECT_EQ(s.statistics().resident_groups, 0);
      EXPECT_EQ(s.statistics().copied_bytes - then.copied_bytes, 4 * 12 * bytes);
      EXPECT_LE(s.statistics().pinned_bytes, pinned);
    }
  }
  Net small(3);
  Streamer s(small, {.device = kGpu, .resident_bytes = 12 * bytes});
  EXPECT_EQ(s.evict(bytes), 0) << "slots would take as much";
  EXPECT_EQ(s.statistics().resident_groups, 3);
}

TEST_F(CudaStreamer, evict_keeps_what_was_written_on_the_device) {
  Net net(12);
  for (auto& block : net.blocks) block.counts = true;
  Streamer s(net, {.device = kGpu, .resident_bytes = 12 * block_bytes()});
  on_gpu(net);
  EXPECT_GT(s.evict(1), 0);
  on_gpu(net);
  EXPECT_GT(s.evict(4 * block_bytes()), 0);
  on_gpu(net);
  s.offload();
  for (auto& block : net.blocks) EXPECT_EQ(block.calls.item(), 3);
}

TEST_F(CudaStreamer, evict_is_for_between_calls) {
  Net net(12);
  const auto want = resident(net);
  Streamer s(net, {.device = kGpu, .resident_bytes = 9 * block_bytes()});
  SF_EXPECT_ERROR(ValueError, "evict: bytes must not be negative, got -1", s.evict(-1));
  const std::vector<Module*> parts{&net, &net.first, &net.blocks[1], &net.blocks[2]};
  for (Module* part : parts) {
    const uint64_t hook = part->register_forward_pre_hook([&](Module&, const Values&) -> Values {
      s.evict(1);
      return {};
    });
    SF_EXPECT_ERROR(RuntimeError, "evict: a call of Net is under way", on_gpu(net));
    part->remove_hook(hook);
  }
  EXPECT_EQ(on_gpu(net), want);
  // A call that ran out of memory has left.
  const uint64_t hook = net.blocks[7].a.register_forward_pre_hook(
      [](Module&, const Values&) -> Values { fail<RuntimeError>("on purpose"); });
  SF_EXPECT_ERROR(RuntimeError, "on purpose", on_gpu(net));
  net.blocks[7].a.remove_hook(hook);
  EXPECT_GT(s.evict(1), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(on_gpu(net), want);
}

TEST_F(StreamerOnCpu, evict_releases_pages) {
  Net net(16);
  map(net);
  autograd::NoGrad off;
  const Tensor x = randn({5, kWidth});
  const Tensor want = net(x);
  Streamer s(net, {.device = Device(), .resident_bytes = 16 * block_bytes()});
  EXPECT_EQ(s.statistics().resident_groups, 16);
  EXPECT_GE(s.evict(2 * block_bytes()), 2 * block_bytes()) << "what slots take subtracted";
  EXPECT_LT(s.statistics().resident_groups, 16 - 2 - 3 + 1);
  EXPECT_EQ(net(x).to_vector(), want.to_vector());
}

TEST_F(CudaStreamer, refuses_what_cannot_work) {
  Net net(6), other(6);
  Streamer s(net, {.device = kGpu});
  SF_EXPECT_ERROR(ValueError, "its weights are streamed already", Streamer(net, {.device = kGpu}));
  SF_EXPECT_ERROR(ValueError, "its weights are streamed already", Streamer(net.blocks[2], {.device = kGpu}));
  SF_EXPECT_ERROR(ValueError, "slots must lie between 3 and 64, got 2", Streamer(other, {.device = kGpu, .slots = 2}));
  {
    autograd::EnableGrad on;
    SF_EXPECT_ERROR(RuntimeError, "call the model under no_grad", net(there_));
  }
  SF_EXPECT_ERROR(RuntimeError, "a captured graph would not wait for them",
                  cuda::capture([&] { net(there_); }, {.warmup = 0}));
  gpu().synchronize(0);
  EXPECT_EQ(Streamer::of(net), &s);
}

TEST_F(CudaStreamer, a_gradient_through_a_slot_that_was_filled_again_is_refused) {
  Net net(6);
  for (auto& p : named_parameters(net)) p.tensor.requires_grad_(false);
  Streamer s(net, {.device = kGpu});
  autograd::EnableGrad on;
  Tensor x = there_.clone();
  x.requires_grad_(true);
  Tensor y = net(x).sum();
  SF_EXPECT_ERROR(RuntimeError, "modified in place", y.backward());
}

TEST_F(CudaStreamer, every_failed_allocation_leaves_the_model_as_it_was) {
  const char* why = "";
  const auto fail_after = allocations_that_pass(&why);
  if (!fail_after) GTEST_SKIP() << why;
  Net net(6);
  const auto want = resident(net);
  gpu().empty_cache(0);
  const size_t before = gpu().memory(0).allocated;
  int failures = 0;
  for (int64_t n = 0;; ++n) {
    bool failed = false;
    fail_after(n);
    try {
      Streamer s(net, {.device = kGpu, .resident_bytes = block_bytes()});
      net(there_);
    } catch (const RuntimeError&) {
      failed = true;
    }
    fail_after(-1);
    EXPECT_EQ(gpu().memory(0).allocated, before) << n;
    EXPECT_EQ(Streamer::of(net), nullptr);
    for (auto& [name, t] : state_dict(net)) ASSERT_TRUE(t.device().is_cpu()) << name << " after " << n;
    if (!failed) break;
    ++failures;
  }
  EXPECT_GT(failures, 8);
  EXPECT_EQ(resident(net), want);
}

TEST_F(CudaStreamer, every_failed_allocation_of_evict_leaves_what_stays) {
  const char* why = "";
  const auto fail_after = allocations_that_pass(&why);
  if (!fail_after) GTEST_SKIP() << why;
  Net net(9);
  const auto want = resident(net);
  int failures = 0;
  for (int64_t n = 0;; ++n) {
    Streamer s(net, {.device = kGpu, .resident_bytes = 9 * block_bytes()});
    ASSERT_EQ(s.statistics().resident_groups, 9);
    bool failed = false;
    fail_after(n);
    try {
      s.evict(1);
    } catch (const RuntimeError&) {
      failed = true;
    }
    fail_after(-1);
    EXPECT_EQ(s.statistics().resident_groups, failed ? 9 : 5) << n;
    EXPECT_EQ(s.is_loaded(), !failed);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(on_gpu(net), want) << n;
    if (!failed) break;
    ++failures;
  }
  EXPECT_GE(failures, 3) << "one for each slot";
}

}  // namespace
}  // namespace sf::nn
