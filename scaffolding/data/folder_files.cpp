#include "scaffolding/data/folder_files.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"

namespace sf::data {

namespace fs = std::filesystem;

std::string lower_suffix(const std::string& name) {
  std::string s = fs::path(name).extension().string();
  for (char& c : s) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  return s;
}

std::string text_of(const std::string& path) {
  io::MappedFile f(path);
  return {reinterpret_cast<const char*>(f.data()), f.size()};
}

std::string trimmed(std::string s) {
  while (!s.empty() && (s.back() == '\n' || s.back() == '\r' || s.back() == ' ' || s.back() == '\t')) s.pop_back();
  return s;
}

bool stays_inside(const std::string& name) {
  fs::path p(name);
  if (p.empty() || p.is_absolute() || name.find('\0') != std::string::npos) return false;
  return std::none_of(p.begin(), p.end(), [](const fs::path& part) { return part == ".."; });
}

std::vector<std::string> files_below(const std::string& root, const char* who) {
  std::error_code error;
  SF_CHECK(fs::is_directory(root, error), who, ": there is no folder '", root, "'");
  std::vector<std::string> names;
  fs::recursive_directory_iterator it(root, error), end;
  SF_CHECK_AS(RuntimeError, !error, root, ": cannot list: ", error.message());
  while (it != end) {
    std::string file = it->path().filename().string();
    if (file.starts_with('.')) it.disable_recursion_pending();
    else if (it->is_regular_file(error))
      names.push_back(fs::path(it->path()).lexically_relative(root).generic_string());
    it.increment(error);
    SF_CHECK_AS(RuntimeError, !error, root, ": cannot list: ", error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace sf::data
