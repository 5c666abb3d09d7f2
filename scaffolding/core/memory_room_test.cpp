#include "scaffolding/core/memory_room.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "scaffolding/core/out_of_memory.h"

namespace sf {
namespace {

// What f returns in a child that may write no more pages than it has; -1 where it dies.
template <class F> int without_room(const F& f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = 4096;
    if (setrlimit(RLIMIT_DATA, &limit) != 0) _exit(2);
    _exit(f());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(MemoryRoom, IsAskedForWhereMemoryIsLimited) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  EXPECT_TRUE(room_for(0));
  EXPECT_TRUE(room_for(size_t(1) << 20));
  EXPECT_FALSE(room_for(SIZE_MAX / 2));
  if (!memory_is_limited()) {
    EXPECT_NO_THROW(require_room(SIZE_MAX / 2, "test"));
  }
  EXPECT_EQ(without_room([] {
              if (!memory_is_limited() || room_for(size_t(1) << 20)) return 3;
              try {
                require_room(size_t(1) << 20, "test");
              } catch (const OutOfMemory&) {
                return 7;
              }
              return 4;
            }),
            7);
}

}  // namespace
}  // namespace sf
