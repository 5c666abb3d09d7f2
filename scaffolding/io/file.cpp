#include "scaffolding/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/io/disk_full.h"
#include "scaffolding/io/read_ahead.h"
#include "scaffolding/io/replacing_folder.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#ifndef O_DIRECT
#define O_DIRECT 0
#endif

namespace sf::io {

[[noreturn]] static void fail_errno(const std::string& path, const char* what) {
  if (errno == ENOSPC || errno == EDQUOT) fail<DiskFull>(path, ": ", what, ": ", std::strerror(errno));
  fail<RuntimeError>(path, ": ", what, ": ", std::strerror(errno));
}

namespace {
// The mappings that live now, by their first byte.
struct Mapping {
  uint64_t size, offset;  // the file's byte that its first one is
  std::string path;       // absolute
  struct stat then;
  int reading[2] = {kUntried, kUntried};  // descriptors of read_mapped: through the page cache, and past it
  static constexpr int kUntried = -1, kRefused = -2;
};
struct Mappings {
  std::mutex lock;
  std::map<uintptr_t, Mapping> files;
};
Mappings& mappings() {
  static auto* all = new Mappings;  // never destroyed: files may be unmapped after main
  return *all;
}

// The mapping that `data` lies in, or end(). The lock is held.
auto mapping_of(const void* data) {
  const auto at = reinterpret_cast<uintptr_t>(data);
  auto& files = mappings().files;
  auto next = files.upper_bound(at);
  if (next == files.begin()) return files.end();
  auto found = std::prev(next);
  return at - found->first < found->second.size ? found : files.end();
}

// What the kernel says of each page of [begin, end): f(first, n, words). False where it does not say.
template <class F> bool each_page(uintptr_t begin, uintptr_t end, uintptr_t page, const F& f) {
  std::array<uint64_t, 2048> words;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  while (begin < end) {
    size_t n = std::min<size_t>(words.size(), (end - begin) / page);
    const ssize_t got = pread(fd, words.data(), n * sizeof(uint64_t), off_t(begin / page * sizeof(uint64_t)));
    if (got < ssize_t(sizeof(uint64_t))) break;
    n = size_t(got) / sizeof(uint64_t);
    f(begin, words.data(), n);
    begin += n * page;
  }
  close(fd);
  return begin >= end;
}
constexpr uint64_t kInMemory = uint64_t(1) << 63, kSwapped = uint64_t(1) << 62, kOfTheFile = uint64_t(1) << 61;
}  // namespace

// Drops those of the pages that are as the file has them. A page that was written is memory of its own,
// which the file cannot give again.
static void drop_unwritten(uintptr_t begin, uintptr_t end, uintptr_t page) {
  each_page(begin, end, page, [&](uintptr_t first, const uint64_t* pages, size_t n) {
    for (size_t i = 0; i < n;) {
      size_t run = i;
      while (run < n && (pages[run] & kInMemory) && (pages[run] & kOfTheFile)) ++run;
      if (run > i) madvise(reinterpret_cast<void*>(first + i * page), (run - i) * page, MADV_DONTNEED);
      i = run + 1;
    }
  });
}

// A descriptor of the mapped file, opened again and kept; negative where it lies elsewhere now or the file system has
// none of the kind. The lock is held.
static int reading(Mapping& file, bool direct) {
  int& fd = file.reading[direct];
  if (fd != Mapping::kUntried) return fd;
  fd = open(file.path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  struct stat now;
  if (fd >= 0 && (fstat(fd, &now) != 0 || now.st_dev != file.then.st_dev || now.st_ino != file.then.st_ino))
    close(std::exchange(fd, -1));
  if (fd < 0) fd = Mapping::kRefused;
  return fd;
}

void release_mapped(const void* data, uint64_t size, bool from_cache) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  std::lock_guard guard(mappings().lock);
  const auto found = mapping_of(data);
  if (found == mappings().files.end() || size > found->second.size - (first - found->first)) return;
  static const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  uintptr_t from = (first + page - 1) / page * page, to = (first + size) / page * page;
  if (from >= to) return;
  drop_unwritten(from, to, page);
  if (!from_cache) return;
  if (const int fd = reading(found->second, false); fd >= 0)
    posix_fadvise(fd, off_t(found->second.offset + (from - found->first)), off_t(to - from), POSIX_FADV_DONTNEED);
}

bool is_mapped(const void* data) {
  std::lock_guard guard(mappings().lock);
  return mapping_of(data) != mappings().files.end();
}

void refuse_changed(const void* data) {
  std::lock_guard guard(mappings().lock);
  const auto found = mapping_of(data);
  if (found == mappings().files.end()) return;
  const auto& file = found->second;
  struct stat now;
  const struct stat& then = file.then;
  // Another file in its place, or none: the mapped one is still whole, under no name.
  if (stat(file.path.c_str(), &now) != 0 || now.st_dev != then.st_dev || now.st_ino != then.st_ino) return;
  SF_CHECK_AS(RuntimeError, now.st_size >= then.st_size, file.path, ": has ", now.st_size, " bytes, and had ",
              then.st_size, " when its weights were mapped; put the whole file back and load the model again");
  SF_CHECK_AS(RuntimeError, now.st_mtim.tv_sec == then.st_mtim.tv_sec && now.st_mtim.tv_nsec == then.st_mtim.tv_nsec,
              file.path, ": was written since its weights were mapped; load the model again");
}

OpenFile::OpenFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail_errno(path, "cannot open");
  try {
    struct stat s;
    if (fstat(fd_, &s) != 0) fail_errno(path, "cannot read");
    SF_CHECK_AS(RuntimeError, S_ISREG(s.st_mode), path, ": is not a regular file");
    size_ = uint64_t(s.st_size);
  } catch (...) {
    close(fd_);
    throw;
  }
}

OpenFile::~OpenFile() { close(fd_); }

// Whether pages that could be written count, though nobody writes them.
static bool writable_pages_count() {
  rlimit data;
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY) return true;
  static const bool no_overcommit = [] {
    std::ifstream mode("/proc/sys/vm/overcommit_memory");
    int value = 0;
    return mode >> value && value == 2;
  }();
  return no_overcommit;
}

bool read_mapped(const void* data, uint64_t bytes, char* to, bool direct) {
  static const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data);
  if (bytes == 0) return true;
  int fd;
  uint64_t at, file_size;
  std::string path;
  {
    std::lock_guard guard(mappings().lock);
    const auto found = mapping_of(data);
    if (found == mappings().files.end() || bytes > found->second.size - (first - found->first)) return false;
    at = found->second.offset + (first - found->first);
    file_size = uint64_t(found->second.then.st_size);
    direct = direct && (reinterpret_cast<uintptr_t>(to) - first) % kDirectPage == 0;
    fd = reading(found->second, direct);
    if (fd < 0 && direct) fd = reading(found->second, direct = false);
    path = found->second.path;
  }
  if (fd < 0) return false;
  bool clean = true;
  const bool said =
      each_page(first / page * page, (first + bytes + page - 1) / page * page, page,
                [&](uintptr_t, const uint64_t* pages, size_t n) {
                  for (size_t i = 0; i < n; ++i)
                    clean = clean && !(pages[i] & kSwapped) && (!(pages[i] & kInMemory) || (pages[i] & kOfTheFile));
                });
  if (!said || !clean) return false;
  uint64_t end = at + bytes;
  if (direct) {
    to -= at % kDirectPage;
    at -= at % kDirectPage;
    end = (end + kDirectPage - 1) / kDirectPage * kDirectPage;
  }
  while (at < std::min(end, file_size)) {
    const ssize_t n = pread(fd, to, size_t(std::min<uint64_t>(end - at, uint64_t(1) << 30)), off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path, "cannot read");
    SF_CHECK_AS(RuntimeError, n > 0, path, ": ends at byte ", at, ", and had ", file_size,
                " bytes when its weights were mapped; put the whole file back and load the model again");
    at += uint64_t(n), to += n;
  }
  return true;
}

MappedFile::MappedFile(const std::string& path) : MappedFile(OpenFile(path), 0, UINT64_MAX) {}

MappedFile::MappedFile(const OpenFile& file, uint64_t begin, uint64_t size) {
  begin = std::min(begin, file.size());
  size_ = std::min(size, file.size() - begin);
  if (size_ == 0) return;  // an empty range cannot be mapped
  static const auto page = uint64_t(sysconf(_SC_PAGESIZE));
  before_ = begin % page;
  sealed_ = writable_pages_count();
  // Private and writable: an in-place op on a loaded tensor must work. Not reserved: files may be larger than memory.
  void* p = mmap(nullptr, size_ + before_, sealed_ ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                 file.fd_, off_t(begin - before_));
  if (p == MAP_FAILED && errno == ENOMEM) {
    rlimit space;
    const bool limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    fail<OutOfMemory>(
        file.path(), ": cannot map ", size_, " bytes: ", std::strerror(ENOMEM),
        limited ? "; RLIMIT_AS is " + std::to_string(space.rlim_cur) + " bytes: raise it (ulimit -v)" : "");
  }
  if (p == MAP_FAILED) fail_errno(file.path(), "cannot map");
  data_ = static_cast<std::byte*>(p) + before_;
  if (sealed_) cpu::seal(p, size_ + before_);
  struct stat s;
  fstat(file.fd_, &s);
  std::lock_guard lock(mappings().lock);
  mappings().files.emplace(reinterpret_cast<uintptr_t>(p), Mapping{size_ + before_, begin - before_,
                                                                   std::filesystem::absolute(file.path()).string(), s});
}

MappedFile::~MappedFile() {
  if (!data_) return;
  void* begin = data_ - before_;
  if (sealed_) cpu::forget_seal(begin);
  std::lock_guard lock(mappings().lock);
  auto mapping = mappings().files.extract(reinterpret_cast<uintptr_t>(begin));
  for (int fd : mapping.mapped().reading)
    if (fd >= 0) close(fd);
  munmap(begin, size_ + before_);
}

Bytes Bytes::map(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::byte* data = file->data();
  uint64_t size = file->size();
  return {.owner = std::move(file), .data = data, .size = size, .name = path};
}

Bytes Bytes::open(const std::string& path) {
  auto file = std::make_shared<const OpenFile>(path);
  const Bytes whole{.size = file->size(), .name = path, .unmapped = file};
  try {
    return whole.mapped();
  } catch (const OutOfMemory&) {
    return whole;
  }
}

Bytes Bytes::mapped() const {
  if (!unmapped) return *this;
  auto part = std::make_shared<const MappedFile>(*unmapped, begin, size);
  SF_CHECK_AS(RuntimeError, part->size() == size, name, ": has fewer bytes than when it was opened");
  const std::byte* from = part->data();
  return {.owner = std::move(part), .data = from, .size = size, .name = name};
}

static std::shared_ptr<std::byte> aligned_bytes(uint64_t size) {
  void* p = size <= SIZE_MAX - 64 ? std::aligned_alloc(64, size_t(size + 64) / 64 * 64) : nullptr;
  SF_CHECK_AS(OutOfMemory, p, "cpu: out of memory: ", size, " bytes asked for");
  return {static_cast<std::byte*>(p), [](std::byte* b) { std::free(b); }};
}

Bytes Bytes::read(const std::string& path) {
  Bytes mapped = map(path);  // copied from its pages: no second way of opening, and the size is known
  return copy(mapped.data, mapped.size, path);
}

Bytes Bytes::copy(const void* data, uint64_t size, const std::string& name) {
  auto memory = aligned_bytes(size);
  if (size) std::memcpy(memory.get(), data, size_t(size));
  const std::byte* p = memory.get();
  return {std::move(memory), p, size, name};
}

Bytes Bytes::take(std::string bytes, const std::string& name) {
  auto kept = std::make_shared<const std::string>(std::move(bytes));
  auto* p = reinterpret_cast<const std::byte*>(kept->data());
  uint64_t size = kept->size();
  return {std::move(kept), p, size, name};
}

Bytes Bytes::borrow(const void* data, uint64_t size, const std::string& name) {
  return {nullptr, static_cast<const std::byte*>(data), size, name};
}

Bytes Bytes::slice(uint64_t offset, uint64_t length) const {
  SF_CHECK(offset <= size && length <= size - offset, name, ": bytes ", offset, " to ", offset, " + ", length,
           " lie outside of its ", size, " bytes");
  return {owner, data ? data + offset : nullptr, length, name, unmapped, begin + offset};
}

ReplacingFile::ReplacingFile(const std::string& path) : name_(path), path_(path) {
  static std::atomic<unsigned> count{0};
  std::error_code ignored;
  if (std::filesystem::is_symlink(path_, ignored))  // replace what the link names, not the link
    if (auto target = std::filesystem::weakly_canonical(path_, ignored); !ignored) path_ = target.string();
  struct stat old;
  const bool there = stat(path_.c_str(), &old) == 0;
  SF_CHECK_AS(RuntimeError, !there || S_ISREG(old.st_mode) || S_ISDIR(old.st_mode), path_,
              ": is no regular file, and a file does not take its place");
  temporary_ = path_ + ".tmp" + std::to_string(getpid()) + "." + std::to_string(count++);
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno(temporary_, "cannot create");
  // who may read it stays as it was
  if (there && S_ISREG(old.st_mode)) fchmod(fd_, old.st_mode & 0777);
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

void ReplacingFile::sync() {
  if (fsync(fd_) != 0) fail_errno(temporary_, "cannot sync");
}

void ReplacingFile::commit() {
  sync();
  if (ReplacingFolder* folder = ReplacingFolder::around(name_)) {
    folder->add(temporary_, path_, name_);
    close(std::exchange(fd_, -1));
    return;
  }
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
