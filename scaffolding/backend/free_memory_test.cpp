#include "scaffolding/backend/free_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kNone = UINT64_MAX, kGiB = uint64_t(1) << 30;

// A tree of files as the kernel shows them.
class FreeMemory : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (fs::path(testing::TempDir()) / ("free_memory_" + std::to_string(getpid()))).string();
    fs::remove_all(root_);
    write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");
    write("/proc/self/status", "Name:\tx\nVmSize:\t 2097152 kB\nVmData:\t 1048576 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void mounted(const std::string& lines) { write("/proc/self/mountinfo", lines); }
  FreeHostMemory look(uint64_t address_space = kNone, uint64_t data = kNone) {
    return free_host_memory({root_, [=](int what) { return what == RLIMIT_AS ? address_space : data; }});
  }
  std::string root_;
  static constexpr const char* kV2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
  static constexpr const char* kV1 =
      "31 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "32 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
};

TEST_F(FreeMemory, IsWhatTheMachineHas) {
  FreeHostMemory m = look();
  EXPECT_EQ(m.free, 8 * kGiB);
  EXPECT_EQ(m.total, 16 * kGiB);
  ASSERT_EQ(m.limits.size(), 1u);
  EXPECT_EQ(m.limits[0].name, "MemAvailable");
}

TEST_F(FreeMemory, IsTheLeastOfTheGroupsAbove) {
  mounted(kV2);
  write("/proc/self/cgroup", "0::/box/inner\n");
  write("/sys/fs/cgroup/box/inner/memory.max", "max\n");
  write("/sys/fs/cgroup/box/inner/memory.current", "1073741824\n");
  write("/sys/fs/cgroup/box/memory.max", "4294967296\n");
  write("/sys/fs/cgroup/box/memory.current", "3221225472\n");
  FreeHostMemory m = look();
  EXPECT_EQ(m.free, kGiB);
  EXPECT_EQ(m.limits[0].name, "cgroup v2 /box (memory.max)");

  // a limit of the innermost group that is lower still
  write("/sys/fs/cgroup/box/inner/memory.high", "1610612736\n");
  EXPECT_EQ(look().free, kGiB / 2);
  EXPECT_EQ(look().limits[0].name, "cgroup v2 /box/inner (memory.high)");
}

TEST_F(FreeMemory, CountsPagesOfFilesAsFree) {
  mounted(kV2);
  write("/proc/self/cgroup", "0::/box\n");
  write("/sys/fs/cgroup/box/memory.max", "4294967296\n");
  write("/sys/fs/cgroup/box/memory.current", "4294967296\n");
  EXPECT_EQ(look().free, 0u);
  write("/sys/fs/cgroup/box/memory.stat", "anon 1073741824\ninactive_file 2147483648\nactive_file 1073741824\n");
  EXPECT_EQ(look().free, 3 * kGiB);
}

TEST_F(FreeMemory, ReadsTheFirstVersionOfCgroups) {
  mounted(kV1);
  write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/jobs/7\n0::/\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  write("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "3221225472\n");
  write("/sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", "2147483648\n");
  write("/sys/fs/cgroup/memory/jobs/7/memory.stat", "inactive_file 5\ntotal_inactive_file 1073741824\n");
  FreeHostMemory m = look();
  EXPECT_EQ(m.free, 2 * kGiB);
  EXPECT_EQ(m.limits[0].name, "cgroup v1 /jobs/7 (memory.limit_in_bytes)");
  EXPECT_EQ(m.limits.size(), 2u) << "no limit is none";
}

// A container may see its own group as the mount's top, though the process's path is the whole one.
TEST_F(FreeMemory, FindsTheGroupBelowAMountOfAPart) {
  mounted("30 23 0:26 /docker/abc /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/my cgroup/memory.max", "2147483648\n");
  write("/sys/fs/my cgroup/memory.current", "1073741824\n");
  write("/sys/fs/my cgroup/sub/memory.max", "1610612736\n");
  write("/sys/fs/my cgroup/sub/memory.current", "1073741824\n");
  write("/proc/self/cgroup", "0::/docker/abc/sub\n");
  EXPECT_EQ(look().free, kGiB / 2);
  write("/proc/self/cgroup", "0::/docker/abcdef\n");  // beside the part
  EXPECT_EQ(look().free, kGiB);
}

TEST_F(FreeMemory, KnowsTheLimitsOfTheProcess) {
  EXPECT_EQ(look(3 * kGiB).free, kGiB);
  EXPECT_EQ(look(3 * kGiB).limits[0].name, "RLIMIT_AS");
  EXPECT_EQ(look(kNone, 3 * kGiB / 2).free, kGiB / 2);
  EXPECT_EQ(look(kNone, 3 * kGiB / 2).limits[0].name, "RLIMIT_DATA");
  EXPECT_EQ(look(kGiB).free, 0u) << "more is used than the limit allows from now on";
  EXPECT_EQ(look(64 * kGiB, 64 * kGiB).free, 8 * kGiB);
}

TEST_F(FreeMemory, KnowsTheAllocatorsLimit) {
  const size_t before = cpu::memory_limit();
  cpu::set_memory_limit(cpu::allocated_bytes() + 1000);
  EXPECT_EQ(look().free, 1000u);
  cpu::set_memory_limit(before);
}

// Whatever the files hold, there is an answer.
TEST_F(FreeMemory, MistrustsTheFiles) {
  mounted("\n - \n30\n30 23 0:26 / /cg\\0 rw - cgroup2\n30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  for (const char* group : {"", "0::", "0::/", "0::relative", "::::\n", "0::/../../..\n", "4:memory"}) {
    write("/proc/self/cgroup", group);
    for (const char* number : {"", "-1", "max", "1e9", "99999999999999999999999", "0x10"}) {
      write("/cg/memory.max", number);
      write("/cg/memory.current", number);
      EXPECT_EQ(look().free, 8 * kGiB) << group << " " << number;
    }
  }
  write("/proc/meminfo", "MemAvailable: many kB\n");
  FreeHostMemory m = look();
  EXPECT_EQ(m.free, m.total);
  EXPECT_GT(m.total, 0u) << "of the machine, where no file says";
}

TEST(FreeMemoryHere, IsSomeAndNotMoreThanAll) {
  FreeHostMemory m = free_host_memory();
  EXPECT_GT(m.free, 0u);
  EXPECT_LE(m.free, m.total);
  EXPECT_EQ(free_device_memory(Device()), 0u);
}

TEST(MetaMemory, CountsWhatIsAliveAtOnce) {
  const Device meta(Device::Meta);
  MetaMemory counter;
  Tensor before = empty({100}, kFloat32, meta);
  {
    MetaMemory::Counting counting(counter);
    Tensor x = empty({256}, kFloat32, meta);
    { Tensor y = x + x, z = x.view({16, 16}); }
    Tensor w = x.narrow(0, 0, 4);
    EXPECT_EQ(counter.live(), 1024) << "views take nothing";
    EXPECT_EQ(counter.peak(), 2048);
    {
      MetaMemory inner;
      MetaMemory::Counting other(inner);
      Tensor v = empty({8}, kFloat64, meta);
      EXPECT_EQ(inner.live(), 64);
    }
    Tensor host = empty({1 << 20}, kFloat32, Device());
  }
  Tensor after = empty({100}, kFloat32, meta);
  EXPECT_EQ(counter.live(), 0);
  EXPECT_EQ(counter.peak(), 2048);
}

}  // namespace
}  // namespace sf
