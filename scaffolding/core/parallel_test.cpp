#include "scaffolding/core/parallel_guided.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "scaffolding/core/release_threads.h"
#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

// The system's numbers of the threads that take part in a loop of n.
std::set<pid_t> team(int64_t n = 1000) {
  std::mutex lock;
  std::set<pid_t> threads;
  parallel_for(n, 1, [&](int64_t, int64_t) {
    std::lock_guard guard(lock);
    threads.insert(gettid());
  });
  return threads;
}

// What f returns in a child process; -1 where it does not return in half a minute.
template <class F> int in_a_child(const F& f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(f());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ParallelForGuided, EveryItemOnceOnAnyNumberOfThreads) {
  const int threads = num_threads();
  for (int count : {1, 2, 3, 8})
    for (int64_t n : {0, 1, 2, 7, 100, 1001}) {
      set_num_threads(count);
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      std::atomic<int> inner{0};
      parallel_for_guided(n, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        EXPECT_LT(thread_index(), count);
        for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
        parallel_for_guided(2, [&](int64_t b, int64_t e) { inner += int(e - b); });  // on this thread
      });
      for (const auto& times : seen) EXPECT_EQ(times, 1);
      if (n) EXPECT_GE(inner, 2);
    }
  set_num_threads(threads);
}

TEST(ParallelForGuided, WhoIsSlowDoesLess) {
  const int threads = num_threads();
  set_num_threads(2);
  std::atomic<int> first{0}, second{0};
  parallel_for_guided(64, [&](int64_t begin, int64_t end) {
    auto& mine = thread_index() == 0 ? first : second;
    // The second is not done with its first piece, a quarter at most, before the other has done all that is left.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (&mine == &second && first < 48 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    mine += int(end - begin);
  });
  EXPECT_EQ(first + second, 64);
  EXPECT_GE(first, 48);
  set_num_threads(threads);
}

TEST(ParallelForGuided, ExceptionsReachTheCaller) {
  EXPECT_THROW(parallel_for_guided(10, [](int64_t begin, int64_t) { throw std::out_of_range(std::to_string(begin)); }),
               std::out_of_range);
}

// Threads of a team by the system's numbers: one that ended and came again has another.
class Team : public testing::Test {
 protected:
  Team() : threads_(num_threads()) { set_num_threads(4); }
  ~Team() override { set_num_threads(threads_); }
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "its teams last as long as their regions";
#endif
  }
  // A thread that was waited for is listed until the system has cleared it away.
  static bool has_ended(pid_t thread) {
    const std::string listed = "/proc/self/task/" + std::to_string(thread);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (access(listed.c_str(), F_OK) == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return access(listed.c_str(), F_OK) != 0;
  }

 private:
  int threads_;
};

TEST_F(Team, OutlivesRegionsOfFewer) {
  const auto first = team(4);
  ASSERT_EQ(first.size(), 4u);
  for (int fewer : {2, 3}) {
    EXPECT_EQ(team(fewer).size(), size_t(fewer));
    EXPECT_EQ(team(4), first);
  }
}

TEST_F(Team, EndsWhenReleasedAndComesAgain) {
  // A thread of its own: the test's may have a team already.
  std::thread([] {
    for (int again = 0; again < 2; ++again) {
      const auto first = team();
      EXPECT_EQ(first.size(), 4u);
      parallel_for(4, 1, [](int64_t, int64_t) { release_threads(); });  // nothing inside a region
      EXPECT_EQ(team(), first);
      release_threads();
      for (pid_t thread : first)
        if (thread != gettid()) EXPECT_TRUE(has_ended(thread)) << thread;
    }
  }).join();
}

class Fork : public testing::Test {
 protected:
  Fork() : threads_(num_threads()) { set_num_threads(2); }
  ~Fork() override { set_num_threads(threads_); }
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer ends children that start threads";
#endif
  }

 private:
  int threads_;
};

TEST_F(Fork, AChildAndItsChildHaveTeamsOfTheirOwn) {
  ASSERT_EQ(team().size(), 2u);
  EXPECT_EQ(in_a_child([] { return team().size() == 2 && in_a_child([] { return int(team().size()); }) == 2 ? 7 : 1; }),
            7);
  EXPECT_EQ(team().size(), 2u);
}

// oneDNN's products start regions of their own.
TEST_F(Fork, AChildMultipliesAndConvolvesAsItsParent) {
  const Tensor a = randn({192, 192}), x = randn({2, 16, 24, 24}), w = randn({16, 16, 3, 3});
  const auto both = [&] {
    auto out = matmul(a, a).to_vector(), more = conv2d(x, w).to_vector();
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  const auto want = both();
  EXPECT_EQ(in_a_child([&] { return both() == want ? 7 : 1; }), 7);
  EXPECT_EQ(both(), want);
}

// Of a thread that computes while another forks, nothing is left in the child.
TEST_F(Fork, AThreadThatComputedElsewhereDoesNotKeepTheChildsPool) {
  std::promise<void> computing, forked;
  std::thread other([&] {
    ComputeScope scope;
    computing.set_value();
    forked.get_future().wait();
  });
  computing.get_future().wait();
  EXPECT_EQ(team().size(), 1u);
  EXPECT_EQ(in_a_child([] { return int(team().size()); }), 2);
  forked.set_value();
  other.join();
}

}  // namespace
}  // namespace sf
