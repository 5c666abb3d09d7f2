#include "scaffolding/data/tar.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "scaffolding/core/error.h"

namespace sf::data {

namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kNameBytes = 1 << 20;              // of a pax header or a long name
constexpr uint64_t kMemberBytes = uint64_t(1) << 31;  // what read() takes into memory

// POSIX.1-1988 ustar; GNU tar's base-256 numbers.
struct Header {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, linkname[100], magic[6], version[2],
      uname[32], gname[32], devmajor[8], devminor[8], prefix[155], padding[12];
};
static_assert(sizeof(Header) == kBlock);

template <size_t N> std::string_view field(const char (&f)[N]) { return {f, strnlen(f, N)}; }

template <size_t N> bool number(const char (&f)[N], uint64_t& out) {
  out = 0;
  if (uint8_t(f[0]) == 0x80) {  // base 256, not negative
    for (size_t i = 1; i < N; ++i) {
      if (out >> 55) return false;
      out = out << 8 | uint8_t(f[i]);
    }
    return true;
  }
  size_t i = 0;
  while (i < N && f[i] == ' ') ++i;
  for (; i < N && f[i] >= '0' && f[i] <= '7'; ++i) out = out << 3 | uint64_t(f[i] - '0');
  for (; i < N; ++i)
    if (f[i] != 0 && f[i] != ' ') return false;
  return true;
}

bool checksum_fits(const Header& h) {
  uint64_t said;
  if (!number(h.checksum, said)) return false;
  auto* p = reinterpret_cast<const uint8_t*>(&h);
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : p[i];
  return sum == said;
}

// "length key=value\n" records; false when they do not tile the text.
bool pax_records(std::string_view text, std::string& path, bool& has_path, uint64_t& size, bool& has_size) {
  while (!text.empty()) {
    size_t digits = text.find(' ');
    if (digits == std::string_view::npos || digits == 0 || digits > 7) return false;
    size_t length = 0;
    for (char c : text.substr(0, digits)) {
      if (c < '0' || c > '9') return false;
      length = length * 10 + size_t(c - '0');
    }
    if (length <= digits + 1 || length > text.size() || text[length - 1] != '\n') return false;
    std::string_view record = text.substr(digits + 1, length - digits - 2);
    text.remove_prefix(length);
    size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") {
      path = value;
      has_path = true;
    } else if (key == "size") {
      if (value.empty() || value.size() > 18) return false;
      size = 0;
      for (char c : value) {
        if (c < '0' || c > '9') return false;
        size = size * 10 + uint64_t(c - '0');
      }
      has_size = true;
    }
  }
  return true;
}

}  // namespace

TarFile::TarFile(const std::string& path) : path_(path) {
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  SF_CHECK_AS(RuntimeError, fd_ >= 0, path, ": cannot open: ", std::strerror(errno));
  try {
    struct stat s;
    SF_CHECK_AS(RuntimeError, fstat(fd_, &s) == 0 && S_ISREG(s.st_mode), path, ": is not a regular file");
    size_ = uint64_t(s.st_size);
    list();
  } catch (...) {
    close(fd_);
    throw;
  }
}

TarFile::~TarFile() { close(fd_); }

void TarFile::read_at(uint64_t offset, void* out, size_t n) const {
  auto* p = static_cast<char*>(out);
  while (n > 0) {
    ssize_t got = pread(fd_, p, n, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    SF_CHECK_AS(RuntimeError, got >= 0, path_, ": cannot read: ", std::strerror(errno));
    SF_CHECK_AS(RuntimeError, got > 0, path_, ": became shorter while it was open");
    p += got;
    offset += uint64_t(got);
    n -= size_t(got);
  }
}

void TarFile::list() {
  std::string long_name, pax_path;
  bool has_long_name = false, has_pax_path = false, has_pax_size = false;
  uint64_t pax_size = 0;
  for (uint64_t at = 0; at < size_;) {
    SF_CHECK(size_ - at >= kBlock, path_, ": is a tar archive that ends inside a header, at byte ", at);
    Header h;
    read_at(at, &h, kBlock);
    if (h.name[0] == 0 &&
        std::string_view(reinterpret_cast<char*>(&h), kBlock).find_first_not_of('\0') == std::string_view::npos)
      return;
    SF_CHECK(checksum_fits(h), path_,
             at == 0 ? ": is no tar archive (compressed archives must be unpacked first)"
                     : ": is a damaged tar archive: wrong checksum of the header at byte ",
             at == 0 ? std::string() : std::to_string(at));
    uint64_t bytes;
    SF_CHECK(number(h.size, bytes), path_, ": is a damaged tar archive: a size that is no number at byte ", at);
    bool header_of_next = h.type == 'x' || h.type == 'L';
    if (has_pax_size && !header_of_next) bytes = pax_size;
    at += kBlock;
    SF_CHECK(bytes <= size_ - at, path_, ": is a tar archive cut short: '", field(h.name), "' has ", bytes, " bytes, ",
             size_ - at, " are left");
    if (header_of_next || h.type == 'g' || h.type == 'K') {
      SF_CHECK(bytes <= kNameBytes, path_, ": is a damaged tar archive: an extended header of ", bytes,
               " bytes at byte ", at);
      std::string text(bytes, '\0');
      read_at(at, text.data(), bytes);
      if (h.type == 'L') {
        long_name = text.substr(0, text.find('\0'));
        has_long_name = true;
      } else if (h.type == 'x') {
        SF_CHECK(pax_records(text, pax_path, has_pax_path, pax_size, has_pax_size), path_,
                 ": is a damaged tar archive: a pax header at byte ", at);
      }
    } else {
      SF_CHECK(h.type != 'S', path_, ": has a sparse file, which is not read: '", field(h.name), "'");
      if (h.type == '0' || h.type == 0 || h.type == '7') {
        Member m{std::string(field(h.name)), at, bytes};
        if (!std::memcmp(h.magic, "ustar", 6) && h.prefix[0]) m.name = std::string(field(h.prefix)) + "/" + m.name;
        if (has_long_name) m.name = long_name;
        if (has_pax_path) m.name = pax_path;
        if (m.name.starts_with("./")) m.name.erase(0, 2);
        if (!m.name.ends_with('/')) members_.push_back(std::move(m));
      }
      has_long_name = has_pax_path = has_pax_size = false;
    }
    at += (bytes + kBlock - 1) / kBlock * kBlock;
  }
}

std::vector<uint8_t> TarFile::read(const Member& m) const {
  SF_CHECK(m.size <= kMemberBytes, path_, ": '", m.name, "' has ", m.size, " bytes, too many for a sample");
  std::vector<uint8_t> bytes(m.size);
  read_at(m.offset, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace sf::data
