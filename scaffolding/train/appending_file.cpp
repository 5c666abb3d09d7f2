#include "scaffolding/train/appending_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "scaffolding/core/error.h"

namespace sf::train {

AppendingFile::AppendingFile(const std::string& path) : path_(path) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  SF_CHECK_AS(RuntimeError, fd_ >= 0, path, ": cannot open: ", std::strerror(errno));
}

AppendingFile::~AppendingFile() { close(fd_); }

void AppendingFile::write(const void* data, size_t bytes) {
  auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = ::write(fd_, p, std::min<size_t>(bytes, size_t(1) << 30));  // Linux writes at most 2 GiB at once
    if (n < 0 && errno == EINTR) continue;
    SF_CHECK_AS(RuntimeError, n >= 0, path_, ": cannot write: ", std::strerror(errno));
    p += n;
    bytes -= size_t(n);
  }
}

void AppendingFile::sync() {
  SF_CHECK_AS(RuntimeError, fsync(fd_) == 0, path_, ": cannot sync: ", std::strerror(errno));
}

}  // namespace sf::train
