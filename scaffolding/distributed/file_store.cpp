#include "scaffolding/distributed/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "scaffolding/core/error.h"

namespace sf::distributed {

namespace {

constexpr uint32_t kMaxBytes = 8 * 1024 * 1024;  // of a key or value; more is not from a store
enum class Change : uint32_t { Set = 0x53465331, Delete = 0x53465332 };
struct Header {
  uint32_t change, key_bytes, value_bytes;
};
constexpr const char* kLeft = "/left";  // how many stores have been destroyed; the keys of users begin with "."

std::string of_user(const std::string& key) { return "." + key; }

}  // namespace

// The file, open and locked, with its new records in the table.
class FileStore::Locked {
 public:
  explicit Locked(FileStore& store) : store_(store), lock_(store.mutex_) {
    fd_ = open(store.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd_ < 0) give_up("cannot be opened");
    while (flock(fd_, LOCK_EX) != 0)
      if (errno != EINTR) {
        close(fd_);
        give_up("cannot be locked");
      }
    try {
      read_new();
    } catch (...) {
      close(fd_);
      throw;
    }
  }
  ~Locked() { close(fd_); }  // and the lock with it
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  // One write, so that a process that dies leaves a whole record or an end that the next one cuts off.
  void write(Change change, const std::string& key, const std::string& value) {
    SF_CHECK(key.size() <= kMaxBytes && value.size() <= kMaxBytes, "FileStore: a key or value has at most ", kMaxBytes,
             " bytes, got ", std::max(key.size(), value.size()));
    Header h{uint32_t(change), uint32_t(key.size()), uint32_t(value.size())};
    std::string record(reinterpret_cast<const char*>(&h), sizeof h);
    record += key + value;
    for (size_t done = 0; done < record.size();) {
      ssize_t n = pwrite(fd_, record.data() + done, record.size() - done, store_.read_to_ + int64_t(done));
      if (n < 0 && errno != EINTR) {
        int error = errno;
        if (ftruncate(fd_, store_.read_to_) != 0) error = errno;
        errno = error;
        give_up("cannot be written");
      }
      if (n > 0) done += size_t(n);
    }
    read_new();
  }

 private:
  [[noreturn]] void give_up(const char* what) {
    fail<RuntimeError>("FileStore: ", store_.path_, " ", what, ": ", std::strerror(errno));
  }
  void read_new() {
    struct stat info;
    if (fstat(fd_, &info) != 0) give_up("cannot be read");
    if (info.st_size < store_.read_to_) store_.read_to_ = 0, store_.table_ = {};  // removed and made anew
    std::string bytes(size_t(info.st_size - store_.read_to_), 0);
    for (size_t done = 0; done < bytes.size();) {
      ssize_t n = pread(fd_, bytes.data() + done, bytes.size() - done, store_.read_to_ + int64_t(done));
      if (n == 0 || (n < 0 && errno != EINTR)) give_up("cannot be read");
      if (n > 0) done += size_t(n);
    }
    for (size_t at = 0; at < bytes.size();) {
      Header h;
      if (bytes.size() - at < sizeof h) break;  // a process died while it wrote: the next record goes over it
      std::memcpy(&h, bytes.data() + at, sizeof h);
      SF_CHECK_AS(RuntimeError,
                  (h.change == uint32_t(Change::Set) || h.change == uint32_t(Change::Delete)) &&
                      h.key_bytes <= kMaxBytes && h.value_bytes <= kMaxBytes,
                  "FileStore: ", store_.path_, " is no file of a store at byte ", store_.read_to_,
                  "; remove it, or name another one");
      size_t size = sizeof h + h.key_bytes + h.value_bytes;
      if (bytes.size() - at < size) break;
      std::string key = bytes.substr(at + sizeof h, h.key_bytes);
      if (Change(h.change) == Change::Set)
        store_.table_.set(key, bytes.substr(at + sizeof h + h.key_bytes, h.value_bytes));
      else store_.table_.erase(key);
      at += size;
      store_.read_to_ += int64_t(size);
    }
  }
  FileStore& store_;
  std::unique_lock<std::mutex> lock_;
  int fd_ = -1;
};

FileStore::FileStore(std::string path, int world_size) : path_(std::move(path)), world_size_(world_size) {
  SF_CHECK(world_size >= 0, "FileStore: world_size must be 0 or more, got ", world_size);
  Locked file(*this);
}

FileStore::~FileStore() {
  if (world_size_ == 0 || access(path_.c_str(), F_OK) != 0) return;
  try {
    Locked file(*this);
    int64_t left = table_.add(kLeft, 1);
    file.write(Change::Set, kLeft, std::to_string(left));
    if (left >= world_size_) unlink(path_.c_str());
  } catch (const Error&) {}  // the file stays, which is no harm
}

void FileStore::set(const std::string& key, const std::string& value) {
  Locked(*this).write(Change::Set, of_user(key), value);
}

std::string FileStore::get(const std::string& key) {
  wait({key}, timeout_);
  Locked file(*this);
  const std::string* held = table_.find(of_user(key));
  SF_CHECK_AS(RuntimeError, held, "FileStore.get: key '", key, "' has just been deleted");
  return *held;
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  Locked file(*this);
  int64_t sum = table_.add(of_user(key), amount);
  file.write(Change::Set, of_user(key), std::to_string(sum));
  return sum;
}

std::string FileStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  Locked file(*this);
  const std::string* held = table_.find(of_user(key));
  bool sets = held ? *held == expected : expected.empty();
  if (!sets) return held ? *held : expected;
  file.write(Change::Set, of_user(key), desired);
  return desired;
}

bool FileStore::check(const std::vector<std::string>& keys) {
  Locked file(*this);
  return std::all_of(keys.begin(), keys.end(), [&](auto& key) { return table_.find(of_user(key)); });
}

void FileStore::wait(const std::vector<std::string>& keys, double timeout_seconds) {
  check_timeout("FileStore.wait", timeout_seconds);
  auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(int64_t(timeout_seconds * 1e9));
  while (!check(keys)) {
    SF_CHECK_AS(RuntimeError, std::chrono::steady_clock::now() < deadline, "FileStore.wait: ", listed(keys),
                " did not come within ", timeout_seconds, " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

bool FileStore::delete_key(const std::string& key) {
  Locked file(*this);
  if (!table_.find(of_user(key))) return false;
  file.write(Change::Delete, of_user(key), "");
  return true;
}

int64_t FileStore::num_keys() {
  Locked file(*this);
  return int64_t(table_.values().size());
}

void FileStore::append(const std::string& key, const std::string& value) {
  Locked file(*this);
  const std::string* held = table_.find(of_user(key));
  file.write(Change::Set, of_user(key), held ? *held + value : value);
}

}  // namespace sf::distributed
