#include "scaffolding/backend/kernel_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "scaffolding/io/test_folder.h"

namespace sf::io::test {
namespace {

namespace fs = std::filesystem;

class KernelFiles : public TestFolder {
 protected:
  void write_aged(const std::string& name, size_t bytes, int hours) {
    fs::last_write_time(write(name, std::string(bytes, 'x')),
                        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  bool exists(const std::string& name) { return fs::exists(path(name)); }
};

TEST_F(KernelFiles, those_that_were_read_longest_ago_go) {
  for (int i = 0; i < 8; ++i) write_aged(std::to_string(i), 100, i == 5 ? 1000 : 100 - i);
  write_aged("left.tmp", 4, 2);
  write_aged("begun.tmp", 4, 0);
  cuda::limit_kernel_files(folder_, 800);
  EXPECT_TRUE(exists("5") && exists("begun.tmp"));
  EXPECT_FALSE(exists("left.tmp"));
  cuda::limit_kernel_files(folder_, 700);  // to 525
  EXPECT_FALSE(exists("5") || exists("0") || exists("1"));
  for (const char* name : {"2", "3", "4", "6", "7", "begun.tmp"}) EXPECT_TRUE(exists(name)) << name;
}

TEST_F(KernelFiles, a_folder_that_is_not_there_is_none) {
  EXPECT_NO_THROW(cuda::limit_kernel_files(path("none"), 1));
  EXPECT_FALSE(exists("none"));
}

}  // namespace
}  // namespace sf::io::test
