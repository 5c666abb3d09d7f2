#include "scaffolding/train/appending_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "scaffolding/core/error.h"

namespace sf::train {

AppendingFile::AppendingFile(const std::string& path) : path_(path) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  SF_CHECK_AS(RuntimeError, fd_ >= 0, path, ": cannot open: ", std::strerror(errno));
}

AppendingFile::~AppendingFile() { close(fd_); }

void AppendingFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    SF_CHECK_AS(RuntimeError, n >= 0, path_, ": cannot write: ", std::strerror(errno));
    bytes.remove_prefix(size_t(n));
  }
}

void AppendingFile::sync() { SF_CHECK_AS(RuntimeError, fsync(fd_) == 0, path_, ": cannot sync: ", std::strerror(errno)); }

}  // namespace sf::train
