// Zip archives, as PyTorch and NumPy use them: the central directory is read, stored entries are borrowed, deflated
// ones inflated with zlib. zip64 both ways; no encryption, no spanning, no other methods.
// A ZipReader is thread-safe; a ZipWriter belongs to one thread.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "scaffolding/io/file.h"

namespace sf::io {

struct ZipEntry {
  std::string name;
  uint16_t method = 0;  // 0 stored, 8 deflated
  uint32_t crc = 0;
  uint64_t compressed = 0;
  uint64_t size = 0;
  uint64_t offset = 0;  // of the compressed bytes in the file; of a directory alone, of the entry's header
};

struct ZipReadOptions {
  // The directory alone is read, and an entry's own header when the entry is: for looking into many files.
  bool directory_alone = false;
  uint64_t most_directory = UINT64_MAX;  // bytes of it; more is a ValueError
};

// The constructor checks every entry: that its local header agrees, that its data lie inside the file and overlap no
// other entry's, that sizes are possible for its method, and that names are unique. ValueError otherwise.
class ZipReader {
 public:
  explicit ZipReader(const Bytes& file, const ZipReadOptions& options = {});
  static bool recognises(const Bytes& file);
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;  // null when there is none
  // The entry's bytes, borrowed where they are stored. check: the CRC of stored bytes too, which reads them all; that
  // of deflated ones is always checked. ValueError when it is wrong.
  Bytes read(const ZipEntry& entry, bool check) const;
  // Its first bytes, up to `most`, without a CRC: of a deflated one no more is inflated.
  Bytes begin(const ZipEntry& entry, uint64_t most) const;
  const std::string& name() const { return file_.name; }

 private:
  ZipEntry located(const ZipEntry& entry) const;
  Bytes file_;
  uint64_t directory_ = 0;  // where it begins
  bool directory_alone_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

// Writes stored entries one after the other. The date is 1980-01-01, so that equal content gives equal bytes.
class ZipWriter {
 public:
  explicit ZipWriter(Sink& sink);
  // The data begin at a multiple of `alignment` of the file.
  void add(const std::string& name, const void* data, uint64_t size, uint64_t alignment = 64);
  void finish();

 private:
  struct Written {
    std::string name;
    uint32_t crc;
    uint64_t size, offset;
  };
  void put(const std::string& bytes);
  Sink& sink_;
  uint64_t at_ = 0;
  std::vector<Written> written_;
};

}  // namespace sf::io
