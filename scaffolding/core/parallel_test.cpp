#include "scaffolding/core/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

// How many threads take part in a loop.
size_t team() {
  std::mutex lock;
  std::set<std::thread::id> threads;
  parallel_for(1000, 1, [&](int64_t, int64_t) {
    std::lock_guard guard(lock);
    threads.insert(std::this_thread::get_id());
  });
  return threads.size();
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
  ASSERT_EQ(team(), 2u);
  EXPECT_EQ(in_a_child([] { return team() == 2 && in_a_child([] { return int(team()); }) == 2 ? 7 : 1; }), 7);
  EXPECT_EQ(team(), 2u);
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
  EXPECT_EQ(team(), 1u);
  EXPECT_EQ(in_a_child([] { return int(team()); }), 2);
  forked.set_value();
  other.join();
}

}  // namespace
}  // namespace sf
