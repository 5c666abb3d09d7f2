// Files: mapped for reading, replaced as a whole for writing. Errors are RuntimeError naming path and reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sf::io {

// A regular file that is open for reading.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  friend class MappedFile;
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A regular file's bytes in memory, or a part of them, read as they are touched. Writes go to private pages, never to
// the file. Where a limit counts pages that could be written (RLIMIT_DATA, no overcommit), they are sealed: whoever
// writes by other means than ops says so first (backend/cpu/sealed_pages.h). OutOfMemory where the process has no
// address space for them. Owns the mapping; const use is thread-safe.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const OpenFile& file, uint64_t begin, uint64_t size);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0, before_ = 0;  // bytes of its first page that lie before data
  bool sealed_ = false;
};

// Pages of mapped files that lie within the range need no memory from now on; they are read again when they are
// touched. Pages that were written stay, as does other memory, and everything where the kernel does not say what was
// written (/proc/self/pagemap). from_cache: the system's page cache forgets them too, where no other program has them
// mapped: it would keep them before pages that are wanted sooner.
void release_mapped(const void* data, uint64_t size, bool from_cache = false);
bool is_mapped(const void* data);  // whether it lies in a mapped file

// A range of bytes and what keeps it alive: a mapped file, a file that was read, or memory. Readers of every format
// take one, so that all of them read from paths and from buffers alike. Copies share the bytes;
// const use is thread-safe.
struct Bytes {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  uint64_t size = 0;
  std::string name;  // for messages: the path, or what the caller called it
  // Where the process has no address space for the whole file (RLIMIT_AS): data is null, and slices are mapped one by
  // one. For readers that ask for it by open().
  std::shared_ptr<const OpenFile> unmapped = {};
  uint64_t begin = 0;  // in it

  static Bytes map(const std::string& path);                                      // pages are read as they are touched
  static Bytes open(const std::string& path);                                     // map(), or unmapped
  static Bytes read(const std::string& path);                                     // the whole file, now
  static Bytes copy(const void* data, uint64_t size, const std::string& name);    // aligned to 64 bytes
  static Bytes take(std::string bytes, const std::string& name);                  // the string's own memory
  static Bytes borrow(const void* data, uint64_t size, const std::string& name);  // the caller keeps them alive
  Bytes slice(uint64_t offset, uint64_t size) const;                              // ValueError outside of this range
  Bytes mapped() const;                                                           // with data
  const char* chars() const { return reinterpret_cast<const char*>(data); }
};

// Where a format is written to.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const void* data, size_t bytes) = 0;
};

class MemorySink final : public Sink {
 public:
  void write(const void* data, size_t size) override { bytes.append(static_cast<const char*>(data), size); }
  std::string bytes;
};

// Writes beside `path` and takes its place on commit(); without one, nothing remains. Within a folder that is written
// as one (io/replacing_folder.h), on that one's commit. One thread at a time.
class ReplacingFile final : public Sink {
 public:
  explicit ReplacingFile(const std::string& path);
  ~ReplacingFile() override;
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;
  void write(const void* data, size_t bytes) override;
  // Where it lies until then: for libraries that write files by name, in place of write().
  const std::string& temporary() const { return temporary_; }
  void sync();    // what was written is on the disk: a full one is found here at the latest
  void commit();  // syncs, then renames

 private:
  std::string name_, path_, temporary_;  // as it was asked for; where a link of that name leads
  int fd_ = -1;
};

}  // namespace sf::io
