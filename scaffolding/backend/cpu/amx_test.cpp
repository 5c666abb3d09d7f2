// Tiles beside what interrupts a program: threads that come and go, children, signals on stacks of their own.
#include "scaffolding/backend/cpu/amx.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/ops.h"

namespace sf::cpu {
namespace {

struct Work {
  Tensor a = randn({128, 192}), b = randn({192, 160}), half_a = a.to(kBFloat16), half_b = b.to(kBFloat16);
  std::vector<double> operator()() const {
    std::vector<double> all = matmul(a, b).to_vector(), more = matmul(half_a, half_b).to_vector();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST(Tiles, AreUsedWhereTheProcessorAndItsKernelHaveThem) {
  EXPECT_TRUE(!has(Isa::avx512amx) || has_tiles());
  EXPECT_TRUE(tiles_refused().empty() || !has_tiles());
  EXPECT_FALSE(emulates_tiles() && has(Isa::avx512amx)) << "one of both";
}

TEST(Tiles, AreEveryThreadsOwn) {
  const Work work;
  const std::vector<double> want = work();
  std::vector<int> wrong(6);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::jthread> threads;
    for (int& count : wrong)
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) count += work() != want;
      });
  }
  for (int count : wrong) EXPECT_EQ(count, 0);
}

TEST(Tiles, AreThereInAChild) {
  const int threads = num_threads();
#if defined(__SANITIZE_THREAD__)
  set_num_threads(1);  // it ends children that start threads
#endif
  const Work work;
  const std::vector<double> want = work();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work() == want ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 7);
  EXPECT_EQ(work(), want);
  set_num_threads(threads);
}

#if defined(__linux__) && defined(AT_MINSIGSTKSZ)
volatile sig_atomic_t interrupts, elsewhere;
char *stack_begin, *stack_end;
volatile float touched[64];
pthread_t interrupted;
void interrupt(int) {
  if (!pthread_equal(pthread_self(), interrupted)) return;
  // not the address of a variable, which AddressSanitizer may keep on a stack of its own
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  if (here < stack_begin || here >= stack_end) elsewhere = elsewhere + 1;
  for (float& x : const_cast<float(&)[64]>(touched)) x = x * 0.5f + 1;  // registers that products hold sums in
  interrupts = interrupts + 1;
}

// The kernel saves the tiles of an interrupted product on the handler's stack, which has to have room for them.
TEST(Tiles, SurviveSignalsOnAStackOfTheirOwn) {
  const Work work;
  const int threads = num_threads();
  set_num_threads(1);
  const std::vector<double> want = work();
  std::vector<char> memory(getauxval(AT_MINSIGSTKSZ) + (64 << 10));
  stack_begin = memory.data(), stack_end = stack_begin + memory.size();
  stack_t stack{}, stack_before{};
  stack.ss_sp = stack_begin, stack.ss_size = memory.size();
  ASSERT_EQ(sigaltstack(&stack, &stack_before), 0);
  struct sigaction action {
  }, action_before{};
  action.sa_handler = interrupt;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &action, &action_before), 0);
  interrupts = 0;
  elsewhere = 0;
  interrupted = pthread_self();
  const itimerval often{{0, 200}, {0, 200}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  int wrong = 0;
  for (int i = 0; i < 400 && (i < 40 || interrupts < 100); ++i) wrong += work() != want;
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &action_before, nullptr);
  sigaltstack(&stack_before, nullptr);
  set_num_threads(threads);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(interrupts, 0);
  EXPECT_EQ(elsewhere, 0);
}
#endif

}  // namespace
}  // namespace sf::cpu
