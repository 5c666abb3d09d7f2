#include "scaffolding/backend/kernel_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "scaffolding/core/env.h"

namespace sf::cuda {

namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "scaffolding kernel 1\n";
constexpr uint64_t kMostBytes = uint64_t(256) << 20;  // of a file: a kernel has a thousandth

constexpr auto kReadAgain = std::chrono::hours(1);  // so much later a file's time is that of its last reading again
constexpr int kWritesBetweenLooks = 64;             // at the folder's size

// FNV-1a, from two starts for file names.
uint64_t hash(const std::string& s, uint64_t h = 0xcbf29ce484222325) {
  for (unsigned char c : s) h = (h ^ c) * 0x100000001b3;
  return h;
}

std::string folder() {
  std::string set = env::text("SF_KERNEL_CACHE");
  if (set == "off") return {};
  if (!set.empty()) return set;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache && *cache) return std::string(cache) + "/scaffolding/kernels";
  return home && *home ? std::string(home) + "/.cache/scaffolding/kernels" : std::string();
}

void put(std::string& to, const std::string& part) {
  uint64_t size = part.size();
  to.append(reinterpret_cast<const char*>(&size), sizeof size);
  to += part;
}

bool take(const std::string& from, size_t& at, std::string& part) {
  uint64_t size = 0;
  if (from.size() - at < sizeof size) return false;
  std::memcpy(&size, from.data() + at, sizeof size);
  at += sizeof size;
  if (size > from.size() - at) return false;
  part = from.substr(at, size);
  at += size;
  return true;
}

// Whether a name is one of kernel_file_path()'s, or one that write_kernel_file() writes beside it: the folder is the
// user's, who may keep other things in it.
bool is_ours(const std::string& name) {
  constexpr size_t kDigits = 32;
  if (name.find_first_not_of("0123456789abcdef") < kDigits || name.size() < kDigits) return false;
  return name.size() == kDigits || (name[kDigits] == '.' && name.ends_with(".tmp"));
}

}  // namespace

std::string kernel_file_path(const std::string& key) {
  std::string in = folder();
  if (in.empty()) return {};
  char name[40];
  std::snprintf(name, sizeof name, "%016llx%016llx", static_cast<unsigned long long>(hash(key)),
                static_cast<unsigned long long>(hash(key, 0x6c62272e07bb0142)));
  return in + "/" + name;
}

bool read_kernel_file(const std::string& key, KernelImage& image) {
  std::string path = kernel_file_path(key);
  std::error_code none;
  if (path.empty() || !fs::is_regular_file(path, none) || fs::file_size(path, none) > kMostBytes) return false;
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t magic = sizeof kMagic - 1;
  if (bytes.size() < magic + sizeof(uint64_t) || bytes.compare(0, magic, kMagic) != 0) return false;
  uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  bytes.resize(bytes.size() - sizeof sum);
  if (hash(bytes) != sum) return false;
  std::string held;
  size_t at = magic;
  KernelImage read;
  if (!take(bytes, at, held) || held != key || !take(bytes, at, read.entry) || !take(bytes, at, read.cubin) ||
      at != bytes.size())
    return false;
  image = std::move(read);
  const auto now = fs::file_time_type::clock::now();
  if (now - fs::last_write_time(path, none) > kReadAgain) fs::last_write_time(path, now, none);
  return true;
}

void write_kernel_file(const std::string& key, const KernelImage& image) {
  std::string path = kernel_file_path(key);
  if (path.empty()) return;
  std::error_code failed;
  fs::create_directories(fs::path(path).parent_path(), failed);
  std::string bytes = kMagic;
  put(bytes, key);
  put(bytes, image.entry);
  put(bytes, image.cubin);
  uint64_t sum = hash(bytes);
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  static std::atomic<int> written{0};
  const int before = written++;
  std::string beside = path + "." + std::to_string(getpid()) + "." + std::to_string(before) + ".tmp";
  std::ofstream file(beside, std::ios::binary);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  file.close();
  if (file.good()) fs::rename(beside, path, failed);
  if (!file.good() || failed) fs::remove(beside, failed);
  const int64_t megabytes = env::integer("SF_KERNEL_CACHE_MB");
  if (megabytes > 0 && before % kWritesBetweenLooks == 0)
    limit_kernel_files(fs::path(path).parent_path(), uint64_t(megabytes) << 20);
}

void limit_kernel_files(const std::string& in, uint64_t most) {
  struct Kept {
    fs::path path;
    uintmax_t bytes;
    fs::file_time_type read;
  };
  std::error_code failed, none;
  std::vector<Kept> files;
  uintmax_t all = 0;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator at(in, failed), end; !failed && at != end; at.increment(failed)) {
    if (!is_ours(at->path().filename().string()) || !at->is_regular_file(none)) continue;
    Kept file{at->path(), at->file_size(none), {}};
    if (none) continue;  // another process removed it
    file.read = at->last_write_time(none);
    if (none) continue;
    if (file.path.extension() == ".tmp") {
      if (now - file.read > std::chrono::hours(1)) fs::remove(file.path, none);
      continue;
    }
    all += file.bytes;
    files.push_back(std::move(file));
  }
  if (all <= most) return;
  std::sort(files.begin(), files.end(), [](const Kept& a, const Kept& b) { return a.read < b.read; });
  for (const Kept& file : files) {
    if (all <= most / 4 * 3) break;
    if (fs::remove(file.path, none)) all -= file.bytes;
  }
}

}  // namespace sf::cuda
