// tar archives (ustar, pax and GNU long names), read in place: a list of the files in it, and their bytes on demand.
// Owns the open file; const use is thread-safe. An archive that is damaged or cut short is a ValueError with its name,
// before memory of a size that it names is taken.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sf::data {

class TarFile {
 public:
  struct Member {
    std::string name;
    uint64_t offset = 0, size = 0;  // of its bytes
  };
  explicit TarFile(const std::string& path);
  ~TarFile();
  TarFile(const TarFile&) = delete;
  TarFile& operator=(const TarFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<Member>& members() const { return members_; }  // regular files, in the archive's order
  std::vector<uint8_t> read(const Member& m) const;

 private:
  void read_at(uint64_t offset, void* out, size_t n) const;
  void list();
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::vector<Member> members_;
};

}  // namespace sf::data
