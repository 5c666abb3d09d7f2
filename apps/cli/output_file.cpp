#include "apps/cli/output_file.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"

namespace sf::cli {

namespace fs = std::filesystem;

void check_output(const char* option, const std::string& path) {
  const size_t length = fs::path(path).filename().string().size();
  SF_CHECK(length <= 255, option, ": a file's name has at most 255 bytes, got ", length);
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  SF_CHECK(!fs::is_directory(path, error), option, ": '", path, "' is a folder");
  SF_CHECK(!fs::exists(path, error) || fs::is_regular_file(path, error), option, ": '", path,
           "' is a FIFO or a device, and no file takes its place; name one");
  if (!folder.empty()) fs::create_directories(folder, error);
  SF_CHECK(folder.empty() || fs::is_directory(folder, error), option, ": cannot make the folder '", folder.string(),
           "'");
  SF_CHECK(access(folder.empty() ? "." : folder.c_str(), W_OK) == 0, option, ": the folder '",
           folder.empty() ? "." : folder.string(), "' cannot be written to");
}

void check_template(const char* option, const std::string& path, const std::vector<std::string>& known) {
  for (size_t open = 0; (open = path.find('{', open)) != path.npos; ++open) {
    const size_t close = path.find_first_of("{}", open + 1);
    if (close == path.npos || path[close] != '}') continue;  // a brace, and no name
    const std::string name = path.substr(open + 1, close - open - 1);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string filled;
    for (size_t i = 0; i < known.size(); ++i)
      filled += (i == 0 ? "" : i + 1 == known.size() ? " and " : ", ") + ("{" + known[i] + "}");
    fail(option, ": {", name, "} is not filled in; ", filled.empty() ? "nothing is here" : filled + " are");
  }
}

void check_output(const char* option, const std::string& path, const std::string& suffixes) {
  const std::string suffix = fs::path(path).extension().string();
  std::string spelled;
  bool known = false;
  for (size_t at = 0; at < suffixes.size();) {
    const size_t end = std::min(suffixes.find(' ', at), suffixes.size());
    const std::string one = suffixes.substr(at, end - at);
    known |= one == suffix;
    spelled += (at == 0 ? "" : end == suffixes.size() ? " or " : ", ") + one;
    at = end + 1;
  }
  SF_CHECK(known, option, ": must end in ", spelled, ", got '", path, "'");
  check_output(option, path);
}

void check_run_folder(const std::string& folder, bool holds_run) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  SF_CHECK(fs::is_directory(folder, error), "--output: '", folder, "' is a file; name a folder");
  SF_CHECK(holds_run || fs::is_empty(folder, error), "--output: '", folder,
           "' is there already and holds no run that could go on; name another folder, or --force puts one into it");
}

}  // namespace sf::cli
