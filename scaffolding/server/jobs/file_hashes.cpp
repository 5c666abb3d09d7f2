#include "scaffolding/server/jobs/file_hashes.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scaffolding/io/json.h"
#include "scaffolding/io/sha.h"

namespace sf::server {

namespace fs = std::filesystem;
using nlohmann::json;

FileHashes::FileHashes(std::string cache) : cache_(std::move(cache)) {
  if (cache_.empty()) return;
  std::ifstream in(cache_);
  const json saved = io::parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  if (!saved.is_object()) return;
  for (auto& [file, k] : saved.items()) {
    try {
      Known known{k.at("bytes").get<uint64_t>(), k.at("changed").get<int64_t>(), k.at("sha256").get<std::string>()};
      if (known.hash.size() == 64) known_[file] = std::move(known);
    } catch (const json::exception&) {
      // it is computed again
    }
  }
}

FileHashes::~FileHashes() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void FileHashes::compute(const std::vector<std::string>& files) {
  std::lock_guard lock(mutex_);
  waiting_.insert(waiting_.end(), files.begin(), files.end());
  if (works_ || waiting_.empty()) return;
  if (thread_.joinable()) thread_.join();  // which has let go of the mutex for good
  works_ = true;
  thread_ = std::thread([this] { work(); });
}

void FileHashes::work() {
  for (;;) {
    std::string file;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) waiting_.clear();
      if (waiting_.empty()) {
        works_ = false;
        idle_.notify_all();
        return;
      }
      file = std::move(waiting_.front());
      waiting_.pop_front();
    }
    add(file);
  }
}

void FileHashes::wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !works_; });
}

FileHashes::Known FileHashes::state_of(const std::string& file) {
  std::error_code error;
  Known now;
  now.bytes = fs::file_size(file, error);
  now.changed = fs::last_write_time(file, error).time_since_epoch().count();
  return now;
}

void FileHashes::add(const std::string& file) {
  Known now = state_of(file);
  {
    std::lock_guard lock(mutex_);
    const auto at = known_.find(file);
    if (at != known_.end() && at->second.bytes == now.bytes && at->second.changed == now.changed) return;
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return;
  io::Sha sha(io::Sha::Sha256);
  std::vector<char> buffer(1 << 20);
  while (in && !stopping_) {
    in.read(buffer.data(), std::streamsize(buffer.size()));
    sha.update(buffer.data(), size_t(in.gcount()));
  }
  if (stopping_ || in.bad()) return;
  now.hash = sha.hex();
  {
    std::lock_guard lock(mutex_);
    known_[file] = now;
  }
  save();
}

void FileHashes::save() const {
  if (cache_.empty()) return;
  json out = json::object();
  {
    std::lock_guard lock(mutex_);
    for (auto& [file, k] : known_) out[file] = {{"bytes", k.bytes}, {"changed", k.changed}, {"sha256", k.hash}};
  }
  const std::string beside = cache_ + ".new";
  std::ofstream(beside) << io::tolerant_json_text(out, 1);
  std::error_code error;
  fs::rename(beside, cache_, error);  // where it fails they are computed again
}

std::string FileHashes::of(const std::string& file) const {
  std::lock_guard lock(mutex_);
  const auto at = known_.find(file);
  return at == known_.end() ? "" : at->second.hash;
}

std::string FileHashes::file_of(std::string_view digits) const {
  if (digits.size() < 8 || digits.size() > 64) return {};
  std::lock_guard lock(mutex_);
  for (auto& [file, k] : known_)
    if (k.hash.starts_with(digits)) return file;
  return {};
}

}  // namespace sf::server
