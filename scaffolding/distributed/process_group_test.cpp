#include "scaffolding/distributed/process_group.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::distributed {
namespace {

int free_port() {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&a), size), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
  close(fd);
  return ntohs(a.sin_port);
}

// Runs `body` as each of `size` processes would, in threads; their errors by rank.
std::vector<std::string> together(int size, const std::function<void(ProcessGroup&)>& body, double timeout = 20) {
  int port = free_port();
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ProcessGroup group({.port = port, .rank = rank, .world_size = size, .timeout_seconds = timeout});
        body(group);
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
      for (int64_t n : {0, 1, 2, 7, 1000, 300000}) {
        Tensor t = empty({n}, kFloat32);
        for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = float(i % 1000) + float(g.rank()) * 0.5f;
        g.all_reduce(t);
        float offset = float(size * (size - 1)) / 4;
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(t.data<float>()[i], float(size) * float(i % 1000) + offset) << n;
      }
    }));
}

TEST(ProcessGroup, EveryReductionAndDtype) {
  expect_none(together(3, [](ProcessGroup& g) {
    double r = g.rank();
    for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64}) {
      auto reduced = [&](Reduction how) {
        Tensor t = full({2, 2}, 2 + r, dtype);
        g.all_reduce(t, how);
        return t.to_vector()[3];
      };
      EXPECT_EQ(reduced(Reduction::Sum), 9);
      EXPECT_EQ(reduced(Reduction::Product), 24);
      EXPECT_EQ(reduced(Reduction::Min), 2);
      EXPECT_EQ(reduced(Reduction::Max), 4);
      if (is_floating(dtype)) EXPECT_EQ(reduced(Reduction::Mean), 3);
    }
    SF_EXPECT_ERROR(TypeError, "the mean needs floating tensors, got int64",
                    g.all_reduce(full({2}, 1, kInt64), Reduction::Mean));
    SF_EXPECT_ERROR(TypeError, "must be floating, int32 or int64, got bool", g.all_reduce(full({2}, 1, kBool)));
    Tensor columns = full({4, 4}, r, kFloat32);
    g.all_reduce(columns.narrow(1, 1, 2));
    EXPECT_EQ(columns.to_vector()[0], r);
    EXPECT_EQ(columns.to_vector()[1], 3);
  }));
}

TEST(ProcessGroup, BroadcastsGathersAndWaits) {
  for (int size : {2, 4})
    expect_none(together(size, [&](ProcessGroup& g) {
      for (int source = 0; source < size; ++source)
        for (int64_t n : {1, 3, 700000}) {  // more than one block
          Tensor t = full({n}, g.rank() == source ? 5.5 : -1, kFloat32);
          g.broadcast(t, source);
          ASSERT_EQ(t.to_vector(), std::vector<double>(size_t(n), 5.5));
        }
      std::vector<Tensor> into;
      for (int i = 0; i < size; ++i) into.push_back(zeros({3}, kInt64));
      g.all_gather(into, full({3}, 10 + g.rank(), kInt64));
      for (int i = 0; i < size; ++i) EXPECT_EQ(into[size_t(i)].to_vector(), std::vector<double>(3, 10 + i));
      g.barrier();
    }));
}

TEST(ProcessGroup, BarriersWaitForTheLast) {
  std::atomic<int> arrived{0};
  expect_none(together(3, [&](ProcessGroup& g) {
    if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ++arrived;
    g.barrier();
    EXPECT_EQ(arrived, 3);
  }));
}

TEST(ProcessGroup, CallsThatDifferAreRefused) {
  auto errors = together(2, [](ProcessGroup& g) { g.all_reduce(full({2 + g.rank()}, 1.0, kFloat32)); });
  EXPECT_NE(errors[0].find("all_reduce: every process must make the same call; rank 0 has 8 bytes of float32, rank 1 "
                           "calls all_reduce with 12 bytes"),
            std::string::npos)
      << errors[0];
  errors = together(2, [](ProcessGroup& g) { g.rank() ? g.barrier() : g.broadcast(full({2}, 1.0, kFloat32), 0); });
  EXPECT_NE(errors[0].find("rank 1 calls barrier"), std::string::npos) << errors[0];
}

TEST(ProcessGroup, AProcessThatEndsOrStallsIsNamed) {
  auto errors = together(2, [](ProcessGroup& g) {
    if (g.rank() == 0) g.barrier();
  });
  EXPECT_NE(errors[0].find("rank 1: "), std::string::npos) << errors[0];
  std::atomic<bool> over{false};
  errors = together(
      2,
      [&](ProcessGroup& g) {
        if (g.rank() == 1)  // until the other has given up
          for (int i = 0; i < 2000 && !over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        else try {
            g.barrier();
          } catch (...) {
            over = true;
            throw;
          }
      },
      1);
  EXPECT_NE(errors[0].find("rank 1: nothing came before the timeout"), std::string::npos) << errors[0];
}

TEST(ProcessGroup, RefusesWhatCannotBe) {
  SF_EXPECT_ERROR(ValueError, "rank must be 0 to 1, got 2", ProcessGroup({.rank = 2, .world_size = 2}));
  SF_EXPECT_ERROR(ValueError, "world_size must be", ProcessGroup({.world_size = 0}));
  SF_EXPECT_ERROR(ValueError, "port must be", ProcessGroup({.port = 70000}));
  SF_EXPECT_ERROR(RuntimeError, "nobody answers",
                  ProcessGroup({.port = free_port(), .rank = 1, .world_size = 2, .timeout_seconds = 0.2}));
  SF_EXPECT_ERROR(RuntimeError, "not every process has come",
                  ProcessGroup({.port = free_port(), .world_size = 2, .timeout_seconds = 0.2}));
  ProcessGroup alone({});
  SF_EXPECT_ERROR(ValueError, "source must be 0 to 0, got 1", alone.broadcast(full({1}, 1.0), 1));
}

}  // namespace
}  // namespace sf::distributed
