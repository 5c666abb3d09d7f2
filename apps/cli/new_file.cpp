#include "apps/cli/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "scaffolding/core/error.h"

namespace sf::cli {

namespace fs = std::filesystem;

namespace {

constexpr int kNames = 1000000;     // that are tried
constexpr size_t kNameBytes = 255;  // of a file's name
constexpr size_t kStemBytes = 180;  // of a temporary one, to which writers add their own ends

// cat.png -> cat-1.png; 0 is the path itself
fs::path numbered(const fs::path& path, int n) {
  if (n == 0) return path;
  const std::string end = "-" + std::to_string(n) + path.extension().string();
  return path.parent_path() / (path.stem().string().substr(0, kNameBytes - std::min(kNameBytes, end.size())) + end);
}

// Gives a file or folder another name, where nothing has that name, or a folder with nothing in it. False where
// something has.
bool rename_to_free(const fs::path& from, const fs::path& to) {
  const auto taken = [] { return errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR || errno == EISDIR; };
  std::error_code none;
  if (fs::is_directory(from, none)) {
    if (std::rename(from.c_str(), to.c_str()) == 0) return true;
    SF_CHECK_AS(RuntimeError, taken(), to.string(), ": cannot take this name: ", std::strerror(errno));
    return false;
  }
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (taken()) return false;
  // Some file systems know no such renaming: a file that is made only where there is none is then replaced.
  const int fd = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && taken()) return false;
  SF_CHECK_AS(RuntimeError, fd >= 0, to.string(), ": cannot create: ", std::strerror(errno));
  close(fd);
  if (std::rename(from.c_str(), to.c_str()) == 0) return true;
  const int why = errno;
  unlink(to.c_str());
  fail<RuntimeError>(to.string(), ": cannot take this name: ", std::strerror(why));
}

// Removed when it leaves the scope, with what is in it, unless it has got its name.
struct Temporary {
  fs::path path;
  ~Temporary() {
    std::error_code none;
    if (!path.empty()) fs::remove_all(path, none);
  }
};

}  // namespace

std::string write_new(const std::string& path, bool force, const std::function<void(const std::string& path)>& write,
                      bool frames) {
  static std::atomic<unsigned> count{0};
  fs::path target(path), pattern;
  if (frames && target.filename().string().find('%') != std::string::npos) pattern = target.filename();
  if (frames && (!pattern.empty() || target.filename().empty())) target = target.parent_path();
  if (force || target.empty()) {  // pictures of a clip in this very folder: it has no other name
    write(path);
    return path;
  }
  const std::string unique = ".tmp" + std::to_string(getpid()) + "-" + std::to_string(count++);
  Temporary made{target.parent_path() /
                 (target.stem().string().substr(0, kStemBytes) + unique + target.extension().string())};
  try {
    write((pattern.empty() ? made.path : made.path / pattern).string());
  } catch (const RuntimeError& e) {  // told with the name that was asked for
    std::string why = e.what();
    for (size_t at; (at = why.find(made.path.string())) != why.npos;)
      why.replace(at, made.path.string().size(), target.string());
    fail<RuntimeError>(why);
  }
  for (int n = 0; n < kNames; ++n) {
    const fs::path name = numbered(target, n);
    if (!rename_to_free(made.path, name)) continue;
    made.path.clear();
    return (pattern.empty() ? name : name / pattern).string();
  }
  fail<RuntimeError>(path, ": is there already, and so are its names with a number up to ", kNames);
}

}  // namespace sf::cli
