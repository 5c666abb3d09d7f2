#include "scaffolding/distributed/process_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <functional>
#include <latch>
#include <thread>

#include "scaffolding/core/dtype.h"
#include "scaffolding/distributed/engine.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::distributed {
namespace {

// Runs `body` as each of `size` processes would, in threads; their errors by rank.
std::vector<std::string> together(int size, const std::function<void(ProcessGroup&)>& body, double timeout = 60) {
  auto store = std::make_shared<HashStore>();
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ProcessGroup group({.store = store, .rank = rank, .world_size = size, .timeout_seconds = timeout});
        body(group);
        group.barrier();  // who leaves first would look like one that has died
      } catch (const std::exception& e) {
        errors[size_t(rank)] = e.what();
      }
    });
  threads.clear();
  return errors;
}

void expect_none(const std::vector<std::string>& errors) {
  for (auto& e : errors) EXPECT_EQ(e, "");
}

TEST(ProcessGroup, SumsOfEverySizeAreTheSameEverywhere) {
  for (int size : {1, 2, 3, 5})
    expect_none(together(size, [&](ProcessGroup& g) {
      for (int64_t n : {0, 1, 2, 7, 1000, 700000}) {  // up to several segments
        Tensor t = empty({n}, kFloat32);
        for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = float(i % 1000) + float(g.rank()) * 0.5f;
        g.all_reduce(t);
        float offset = float(size * (size - 1)) / 4;
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(t.data<float>()[i], float(size) * float(i % 1000) + offset) << n;
      }
    }));
}

TEST(ProcessGroup, AddsInOneTreeOverTheRanks) {
  expect_none(together(4, [](ProcessGroup& g) {
    float numbers[] = {1.f, 1e8f, -1e8f, 3.f};
    Tensor t = full({3}, numbers[g.rank()], kFloat32);
    g.all_reduce(t);
    EXPECT_EQ(t.to_vector()[1], (1.f + 1e8f) + (-1e8f + 3.f));
    EXPECT_NE(t.to_vector()[1], ((1.f + 1e8f) + -1e8f) + 3.f);
  }));
}

TEST(ProcessGroup, SeveralTensorsAreReducedAsOne) {
  const std::vector<int64_t> sizes = {5, 0, 400000, 1, 1, 300001, 170000, 3};  // parts begin and end within some
  for (int size : {1, 2, 3, 4})
    expect_none(together(size, [&](ProcessGroup& g) {
      std::vector<Tensor> list;
      int64_t total = 0;
      for (int64_t n : sizes) {
        list.push_back(empty({n}, kFloat32));
        for (int64_t i = 0; i < n; ++i) list.back().data<float>()[i] = 0.1f * float((total + i) % 1237 + g.rank());
        total += n;
      }
      Tensor whole = empty({total}, kFloat32);
      int64_t at = 0;
      for (const Tensor& t : list) whole.narrow(0, at, t.numel()).copy_(t), at += t.numel();
      list.insert(list.begin() + 3, full({6, 8}, g.rank(), kFloat32).narrow(1, 2, 4));  // not of one piece
      g.all_reduce(whole);
      g.all_reduce_coalesced(list);
      EXPECT_EQ(list[3].to_vector(), std::vector<double>(24, size * (size - 1) / 2));
      list.erase(list.begin() + 3);
      at = 0;
      for (const Tensor& t : list) {
        ASSERT_EQ(t.to_vector(), whole.narrow(0, at, t.numel()).to_vector());
        at += t.numel();
      }
      SF_EXPECT_ERROR(ValueError, "needs at least one tensor", g.all_reduce_coalesced({}));
      SF_EXPECT_ERROR(ValueError, "all tensors must have one dtype and device, got float32 on cpu and int32",
                      g.all_reduce_coalesced({whole, full({1}, 1, kInt32)}));
    }));
  auto errors = together(2, [](ProcessGroup& g) {
    g.all_reduce_coalesced({full({2 + g.rank()}, 1, kFloat32), full({2 - g.rank()}, 1, kFloat32)});
  });
  for (auto& e : errors)
    EXPECT_NE(e.find("rank 0 makes all_reduce_coalesced of 4 float32 in 2 tensors, whose sizes have the hash "),
              std::string::npos)
        << e;
}

TEST(ProcessGroup, EveryReductionAndDtype) {
  expect_none(together(3, [](ProcessGroup& g) {
    int r = g.rank();
    for (int d = 0; d < kNumDTypes; ++d) {
      DType dtype = DType(d);
      auto reduced = [&](ReduceOp op) {
        Tensor t = full({2, 2}, dtype == kBool ? r == 1 : 2 + r, kFloat32).to(dtype);
        g.all_reduce(t, op);
        return t.to(kFloat64).to_vector()[3];
      };
      SCOPED_TRACE(std::string(name(dtype)));
      bool boolean = dtype == kBool;
      EXPECT_EQ(reduced(ReduceOp::SUM), boolean ? 1 : dtype == kFloat8E5M2 ? 8 : 9);  // 9 is none of its numbers
      EXPECT_EQ(reduced(ReduceOp::PRODUCT), boolean ? 0 : 24);
      EXPECT_EQ(reduced(ReduceOp::MIN), boolean ? 0 : 2);
      EXPECT_EQ(reduced(ReduceOp::MAX), boolean ? 1 : 4);
      Tensor one = full({1}, 1, kFloat32).to(dtype);
      if (is_floating(dtype)) {
        EXPECT_EQ(reduced(ReduceOp::AVG), 3);
        SF_EXPECT_ERROR(TypeError, "needs integers or bool", g.all_reduce(one, ReduceOp::BOR));
      } else {
        EXPECT_EQ(reduced(ReduceOp::BAND), boolean ? 0 : (2 & 3 & 4));
        EXPECT_EQ(reduced(ReduceOp::BOR), boolean ? 1 : (2 | 3 | 4));
        EXPECT_EQ(reduced(ReduceOp::BXOR), boolean ? 1 : (2 ^ 3 ^ 4));
        SF_EXPECT_ERROR(TypeError, "ReduceOp.AVG needs floating tensors", g.all_reduce(one, ReduceOp::AVG));
      }
    }
    Tensor columns = full({4, 4}, r, kFloat32);
    g.all_reduce(columns.narrow(1, 1, 2));
    EXPECT_EQ(columns.to_vector()[0], r);
    EXPECT_EQ(columns.to_vector()[1], 3);
  }));
}

TEST(ProcessGroup, MovesTensors) {
  for (int size : {1, 2, 4})
    expect_none(together(size, [&](ProcessGroup& g) {
      int r = g.rank();
      for (int root = 0; root < size; ++root)
        for (int64_t n : {0, 1, 3, 700000}) {
          Tensor t = full({n}, r == root ? 5.5 : -1, kFloat32);
          g.broadcast(t, root);
          ASSERT_EQ(t.to_vector(), std::vector<double>(size_t(n), 5.5));
          Tensor sum = full({n}, r + 1, kFloat64);
          g.reduce(sum, root);
          ASSERT_EQ(sum.to_vector(), std::vector<double>(size_t(n), r == root ? size * (size + 1) / 2. : r + 1));
          std::vector<Tensor> parts;
          for (int i = 0; i < size && r == root; ++i) parts.push_back(full({n}, i * 2, kInt32));
          Tensor part = empty({n}, kInt32);
          g.scatter(part, parts, root);
          ASSERT_EQ(part.to_vector(), std::vector<double>(size_t(n), r * 2));
          g.gather(full({n}, 7 + r, kInt32), parts, root);
          for (int i = 0; i < int(parts.size()); ++i)
            ASSERT_EQ(parts[size_t(i)].to_vector(), std::vector<double>(size_t(n), 7 + i));
        }
      std::vector<Tensor> into;
      for (int i = 0; i < size; ++i) into.push_back(zeros({3}, kInt64));
      g.all_gather(into, full({3}, 10 + r, kInt64));
      for (int i = 0; i < size; ++i) EXPECT_EQ(into[size_t(i)].to_vector(), std::vector<double>(3, 10 + i));
      Tensor all = empty({size, 2}, kInt64), own = empty({2}, kInt64), sums = empty({2}, kInt64);
      g.all_gather_into_tensor(all, full({2}, r, kInt64));
      for (int i = 0; i < size; ++i) EXPECT_EQ(all.to_vector()[size_t(i) * 2], i);
      g.reduce_scatter_tensor(own, all);
      EXPECT_EQ(own.to_vector(), std::vector<double>(2, r * size));
      Tensor in = full({2 * size}, r, kFloat32), out = empty({2 * size}, kFloat32);
      g.all_to_all_single(out, in);
      for (int i = 0; i < size; ++i) EXPECT_EQ(out.to_vector()[size_t(i) * 2 + 1], i);
      std::vector<int64_t> gives, takes;  // i rows to rank i
      for (int i = 0; i < size; ++i) gives.push_back(i), takes.push_back(r);
      Tensor rows = full({size * (size - 1) / 2, 3}, r, kInt8), came = empty({int64_t(size) * r, 3}, kInt8);
      g.all_to_all_single(came, rows, takes, gives);
      for (int i = 0; i < size && r > 0; ++i) EXPECT_EQ(came.to_vector()[size_t(i * r) * 3], i);
    }));
}

TEST(ProcessGroup, SendsWithoutWaitingForEachOther) {
  expect_none(together(3, [](ProcessGroup& g) {
    int next = (g.rank() + 1) % 3, before = (g.rank() + 2) % 3;
    Tensor big = full({1 << 20}, g.rank(), kFloat32), came = empty({1 << 20}, kFloat32), tagged = empty({1}, kInt64);
    auto send = g.isend(big, next);  // all send first
    auto other = g.isend(full({1}, g.rank(), kInt64), next, 5);
    auto receive_tagged = g.irecv(tagged, before, 5);
    auto receive = g.irecv(came, before);
    receive_tagged->wait(), receive->wait(), send->wait(), other->wait();
    EXPECT_EQ(came.to_vector()[12345], before);
    EXPECT_EQ(tagged.to_vector()[0], before);
    SF_EXPECT_ERROR(ValueError, "is this process itself", g.isend(big, g.rank()));
    SF_EXPECT_ERROR(ValueError, "dst must be 0 to 2, got 3", g.isend(big, 3));
  }));
}

TEST(ProcessGroup, CallsOfItsThreadKeepTheirOrder) {
  expect_none(together(2, [](ProcessGroup& g) {
    std::vector<Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(full({1000 * i + 1}, i + g.rank(), kFloat32));
      works.push_back(g.all_reduce(tensors.back(), ReduceOp::SUM, true));
    }
    Tensor last = full({1}, 1, kFloat32);
    g.all_reduce(last);  // after them
    for (auto& w : works) EXPECT_TRUE(w->is_completed() && w->is_success());
    for (int i = 0; i < 20; ++i) EXPECT_EQ(tensors[size_t(i)].to_vector()[0], 2 * i + 1);
    EXPECT_EQ(g.counts().calls, 21);
  }));
}

TEST(ProcessGroup, BarriersWaitForTheLast) {
  std::atomic<int> arrived{0};
  expect_none(together(3, [&](ProcessGroup& g) {
    if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ++arrived;
    g.barrier();
    EXPECT_EQ(arrived, 3);
    g.monitored_barrier(20);
  }));
}

TEST(ProcessGroup, CallsThatDifferAreRefusedEverywhere) {
  auto errors = together(3, [](ProcessGroup& g) { g.all_reduce(full({g.rank() == 2 ? 3 : 2}, 1.0, kFloat32)); });
  for (auto& e : errors)
    EXPECT_NE(e.find("all_reduce: every process must make the same call, in the same order: rank 0 makes all_reduce of "
                     "2 float32 by ReduceOp.SUM, rank 2 makes all_reduce of 3 float32"),
              std::string::npos)
        << e;
  errors = together(2, [](ProcessGroup& g) { g.rank() ? g.barrier() : g.broadcast(full({2}, 1.0, kFloat32), 0); });
  for (auto& e : errors)
    EXPECT_NE(e.find("rank 0 makes broadcast of 2 float32 with root 0, rank 1 makes barrier"), std::string::npos) << e;
  errors = together(2, [](ProcessGroup& g) { g.all_reduce(full({2}, 1, g.rank() ? kFloat16 : kInt16)); });
  for (auto& e : errors) EXPECT_NE(e.find("rank 1 makes all_reduce of 2 float16"), std::string::npos) << e;
}

TEST(ProcessGroup, AProcessThatEndsOrStallsIsNamed) {
  auto errors = together(3, [](ProcessGroup& g) {
    if (g.rank() == 1) fail<RuntimeError>("it ends");
    g.barrier();
  });
  for (int r : {0, 2}) {
    EXPECT_NE(errors[size_t(r)].find("rank 1 is gone"), std::string::npos) << errors[size_t(r)];
    EXPECT_NE(errors[size_t(r)].find("barrier: "), std::string::npos) << errors[size_t(r)];
  }
  std::atomic<int> over{0};
  errors = together(
      3,
      [&](ProcessGroup& g) {
        if (g.rank() == 1) {  // until the others have given up
          for (int i = 0; i < 2000 && over < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          fail<RuntimeError>("late");
        }
        try {
          g.barrier();
        } catch (...) {
          ++over;
          try {
            g.barrier();
          } catch (const RuntimeError& e) {
            EXPECT_NE(std::string(e.what()).find("this group has failed before"), std::string::npos) << e.what();
          }
          throw;
        }
      },
      1);
  for (int r : {0, 2})
    EXPECT_NE(errors[size_t(r)].find("rank 1 did not come before the timeout"), std::string::npos) << errors[size_t(r)];
}

// A process that is written to after it has ended is an error of the call: SIGPIPE would end this one.
TEST(ProcessGroup, AClosedSocketEndsNoProcess) {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  expect_none(together(2, [](ProcessGroup& g) { g.barrier(); }));
  EXPECT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_IGN);
  auto own = [](int) {};
  std::signal(SIGPIPE, own);
  expect_none(together(2, [](ProcessGroup& g) { g.barrier(); }));
  EXPECT_EQ(std::signal(SIGPIPE, before), static_cast<void (*)(int)>(own));  // a program's handler stays
}

TEST(ProcessGroup, AMonitoredBarrierNamesThoseWhoAreMissing) {
  auto errors = together(4, [](ProcessGroup& g) {
    if (g.rank() < 2) {
      SF_EXPECT_ERROR(RuntimeError, "within 0.3 s did not come: ranks '2', '3'", g.monitored_barrier(0.3, true));
    }
    g.barrier();  // the group is whole
  });
  expect_none(errors);
}

// While the call begins, and when it has long been waiting: ours, and one of Gloo's own.
TEST(ProcessGroup, DestroyedWhileACallIsUnderWay) {
  for (int round = 0; round < 12; ++round) {
    std::latch over(2);
    const auto begun = std::chrono::steady_clock::now();
    auto errors = together(
        2,
        [&](ProcessGroup& g) {
          if (g.rank() == 1) over.arrive_and_wait();  // there, and silent
          if (g.rank() == 1) fail<RuntimeError>("never comes");
          Tensor t = full({4}, 1, kFloat32);
          auto work = round % 2 ? g.all_reduce(t, ReduceOp::SUM, true) : g.broadcast(t, 1, true);
          if (round >= 8) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          g.close();
          SF_EXPECT_ERROR(RuntimeError, "the group was destroyed", work->wait());
          over.count_down();
          fail<RuntimeError>("closed");
        },
        300);
    EXPECT_EQ(errors[0], "closed");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60)) << round;
  }
}

TEST(ProcessGroup, PartsOfTheWorld) {
  auto store = std::make_shared<HashStore>();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<int> ranks = rank % 2 ? std::vector<int>{1, 3} : std::vector<int>{0, 2};
      ProcessGroup g({.store = store,
                      .rank = rank / 2,
                      .world_size = 2,
                      .timeout_seconds = 60,
                      .ranks = ranks,
                      .name = rank % 2 ? "odd" : "even"});
      Tensor t = full({1}, rank, kInt64);
      g.all_reduce(t);
      EXPECT_EQ(t.to_vector()[0], rank % 2 ? 4 : 2);
      EXPECT_EQ(g.ranks(), ranks);
    });
}

TEST(ProcessGroup, RefusesWhatCannotBe) {
  auto store = std::make_shared<HashStore>();
  SF_EXPECT_ERROR(ValueError, "rank must be 0 to 1, got 2", ProcessGroup({.rank = 2, .world_size = 2}));
  SF_EXPECT_ERROR(ValueError, "world_size must be", ProcessGroup({.world_size = 0}));
  SF_EXPECT_ERROR(ValueError, "got 'tcp'; use 'gloo'", ProcessGroup({.backend = "tcp"}));
  SF_EXPECT_ERROR(TypeError, "need a store", ProcessGroup({.world_size = 2}));
  SF_EXPECT_ERROR(RuntimeError, "not every process has come within 0.2 s: missing are the ranks '1', '2'",
                  ProcessGroup({.store = store, .world_size = 3, .timeout_seconds = 0.2}));
  SF_EXPECT_ERROR(ValueError, "two processes have rank 0 of 3",
                  ProcessGroup({.store = store, .world_size = 3, .timeout_seconds = 0.2}));
  SF_EXPECT_ERROR(ValueError, "rank 1 has world_size=2, another process has 3",
                  ProcessGroup({.store = store, .rank = 1, .world_size = 2, .timeout_seconds = 0.2}));
  ProcessGroup alone({});
  SF_EXPECT_ERROR(ValueError, "src must be 0 to 0, got 1", alone.broadcast(full({1}, 1.0), 1));
  SF_EXPECT_ERROR(ValueError, "needs a tensor for each of 1 processes, got 0", alone.all_gather({}, full({1}, 1.0)));
}

TEST(ProcessGroup, TheFakeBackendCounts) {
  ProcessGroup g({.backend = "fake", .rank = 3, .world_size = 1000});
  Tensor t = full({250}, 2, kFloat32), all = empty({1000, 250}, kFloat32);
  g.all_reduce(t);
  g.all_gather_into_tensor(all, t);
  g.barrier();
  EXPECT_EQ(t.to_vector()[0], 2);
  EXPECT_EQ(all.to_vector()[999 * 250], 2);
  EXPECT_EQ(g.counts().calls, 3);
  EXPECT_EQ(g.counts().bytes, 2000);
}

}  // namespace
}  // namespace sf::distributed
