// Files: mapped for reading, replaced as a whole for writing. Errors are RuntimeError naming path and reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace sf::io {

// A regular file's bytes in memory, read as they are touched. Writes go to private pages, never to the file.
// Owns the mapping; const use is thread-safe.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// Writes beside `path` and takes its place on commit(); without one, nothing remains. One thread at a time.
class ReplacingFile {
 public:
  explicit ReplacingFile(const std::string& path);
  ~ReplacingFile();
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;
  void write(const void* data, size_t bytes);
  void commit();  // syncs to disk, then renames

 private:
  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace sf::io
