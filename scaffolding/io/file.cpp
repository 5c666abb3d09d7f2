#include "scaffolding/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "scaffolding/core/error.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace sf::io {

[[noreturn]] static void fail_errno(const std::string& path, const char* what) { fail<RuntimeError>(path, ": ", what, ": ", std::strerror(errno)); }

MappedFile::MappedFile(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a FIFO must not wait for a writer
  if (fd < 0) fail_errno(path, "cannot open");
  struct Close {
    int fd;
    ~Close() { close(fd); }
  } guard{fd};
  struct stat s;
  if (fstat(fd, &s) != 0) fail_errno(path, "cannot read");
  SF_CHECK_AS(RuntimeError, S_ISREG(s.st_mode), path, ": is not a regular file");
  size_ = uint64_t(s.st_size);
  if (size_ == 0) return;  // an empty range cannot be mapped
  // Private and writable: an in-place op on a loaded tensor must work. Not reserved: files may be larger than memory.
  void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) fail_errno(path, "cannot map");
  data_ = static_cast<std::byte*>(p);
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

ReplacingFile::ReplacingFile(const std::string& path) : path_(path) {
  static std::atomic<unsigned> count{0};
  std::error_code ignored;
  if (std::filesystem::is_symlink(path_, ignored))  // replace what the link names, not the link
    if (auto target = std::filesystem::weakly_canonical(path_, ignored); !ignored) path_ = target.string();
  temporary_ = path_ + ".tmp" + std::to_string(getpid()) + "." + std::to_string(count++);
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno(temporary_, "cannot create");
}

ReplacingFile::~ReplacingFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void ReplacingFile::write(const void* data, size_t bytes) {
  auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = ::write(fd_, p, std::min<size_t>(bytes, size_t(1) << 30));  // Linux writes at most 2 GiB at once
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(temporary_, "cannot write");
    p += n;
    bytes -= size_t(n);
  }
}

void ReplacingFile::commit() {
  if (fsync(fd_) != 0) fail_errno(temporary_, "cannot sync");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(path_, "cannot replace");
  close(fd_);
  fd_ = -1;
  // The rename itself reaches the disk with the directory. Some file systems cannot sync one; the file is whole anyway.
  auto folder = std::filesystem::path(path_).parent_path();
  int dir = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (dir >= 0) {
    fsync(dir);
    close(dir);
  }
}

}  // namespace sf::io
