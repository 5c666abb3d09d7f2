// TestFolder: the fixture of tests that write files: a folder of the test's own, gone afterwards. One thread.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sf::io {

class TestFolder : public testing::Test {
 protected:
  TestFolder() {
    auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("sf_" + std::to_string(getpid()) + test->test_suite_name() + test->name());
    std::filesystem::create_directories(folder_);
  }
  ~TestFolder() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return size_t(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }
  std::filesystem::path folder_;
};

// The error that f throws, as text; a failure of the test without one.
template <class E, class F> std::string error_of(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}
#define SF_EXPECT_ERROR(type, text, ...)                                       \
  do {                                                                         \
    std::string what = ::sf::io::error_of<type>([&] { (void)(__VA_ARGS__); }); \
    EXPECT_NE(what.find(text), std::string::npos) << what;                     \
  } while (0)

}  // namespace sf::io
