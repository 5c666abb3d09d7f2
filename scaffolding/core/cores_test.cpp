#include "scaffolding/core/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sf {
namespace {

namespace fs = std::filesystem;

// A tree of files as the kernel shows them: 8 CPUs, of which i and i + 4 are one core's.
class UsableCores : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (fs::path(testing::TempDir()) / ("cores_" + std::to_string(getpid()))).string();
    fs::remove_all(root_);
    for (int cpu = 0; cpu < 8; ++cpu) siblings(cpu, std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void siblings(int cpu, const std::string& text, const std::string& file = "core_cpus_list") {
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + file, text);
  }
  int look(const std::vector<int>& cpus = {0, 1, 2, 3, 4, 5, 6, 7}) { return usable_cores({cpus, root_}); }
  std::string root_;
};

TEST_F(UsableCores, HardwareThreadsOfACoreCountOnce) {
  EXPECT_EQ(look(), 4);
  EXPECT_EQ(look({0, 1, 2}), 3);
  EXPECT_EQ(look({1, 2, 3, 5, 6}), 3) << "affinity";
  EXPECT_EQ(look({5}), 1);
  EXPECT_EQ(look({3, 7}), 2) << "a lone core's both";
}

TEST_F(UsableCores, OlderKernelsHaveAnotherNameForThem) {
  fs::remove_all(root_);
  for (int cpu = 0; cpu < 4; ++cpu) siblings(cpu, cpu < 2 ? "0-1\n" : "2-3\n", "thread_siblings_list");
  EXPECT_EQ(look({0, 1, 2, 3}), 2);
}

TEST_F(UsableCores, CpusThatNothingTellsOfAreCores) {
  EXPECT_EQ(look({20, 21, 22}), 3);
  for (const char* text : {"", "x", "0-", "-4", "4-0", "0-99999999999999", "0 4", "1,5"}) {
    siblings(0, text), siblings(4, text);
    EXPECT_EQ(look(), 5) << text;
  }
}

TEST_F(UsableCores, NoMoreThanTheQuotaOfAContainer) {
  write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
  write("/proc/self/cgroup", "0::/box/inner\n");
  write("/sys/fs/cgroup/box/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(look(), 4);
  write("/sys/fs/cgroup/box/cpu.max", "250000 100000\n");
  EXPECT_EQ(look(), 3) << "of the group above, rounded up";
  write("/sys/fs/cgroup/box/inner/cpu.max", "10000 100000\n");
  EXPECT_EQ(look(), 1);
  write("/sys/fs/cgroup/box/inner/cpu.max", "6400000 100000\n");
  EXPECT_EQ(look(), 3);
  for (const char* text : {"", "max", "0 0", "-1 100000", "100000 0", "100000", "nan nan", "x y"}) {
    write("/sys/fs/cgroup/box/cpu.max", text);
    EXPECT_EQ(look(), 4) << text;
  }
}

TEST_F(UsableCores, QuotasOfTheFirstVersionOfCgroups) {
  write("/proc/self/mountinfo", "31 23 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  write("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(look(), 4);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(look(), 4) << "without a period";
  write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(look(), 2);
}

TEST(UsableCoresHere, AreSome) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), int(sysconf(_SC_NPROCESSORS_CONF)));
}

}  // namespace
}  // namespace sf
