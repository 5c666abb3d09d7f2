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

// As long as the names of kernel files.
std::string digits(int i) { return std::string(31, 'a') + std::to_string(i); }

TEST_F(KernelFiles, those_that_were_read_longest_ago_go) {
  for (int i = 0; i < 8; ++i) write_aged(digits(i), 100, i == 5 ? 1000 : 100 - i);
  write_aged(digits(1) + ".7.0.tmp", 4, 2);
  write_aged(digits(2) + ".7.0.tmp", 4, 0);
  cuda::limit_kernel_files(folder_, 800);
  EXPECT_TRUE(exists(digits(5)) && exists(digits(2) + ".7.0.tmp"));
  EXPECT_FALSE(exists(digits(1) + ".7.0.tmp"));
  cuda::limit_kernel_files(folder_, 700);  // to 525
  for (int i = 0; i < 8; ++i) EXPECT_EQ(exists(digits(i)), i > 1 && i != 5) << i;
}

TEST_F(KernelFiles, what_else_is_in_the_folder_stays) {
  const std::string others[] = {"thesis.tex", "left.tmp", digits(1) + "0", digits(1) + ".txt", std::string(32, 'g')};
  for (auto& name : others) write_aged(name, 1000, 5000);
  write_aged(digits(1), 100, 1);
  cuda::limit_kernel_files(folder_, 10);
  for (auto& name : others) EXPECT_TRUE(exists(name)) << name;
  EXPECT_FALSE(exists(digits(1)));
}

TEST_F(KernelFiles, a_folder_that_is_not_there_is_none) {
  EXPECT_NO_THROW(cuda::limit_kernel_files(path("none"), 1));
  EXPECT_FALSE(exists("none"));
}

}  // namespace
}  // namespace sf::io::test
