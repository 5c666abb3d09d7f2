#include "scaffolding/io/formats/zip.h"

#include <zlib.h>

#include <algorithm>

#include "scaffolding/io/byte_reader.h"

namespace sf::io {

namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kEndBytes = 22, kCentralBytes = 46, kLocalBytes = 30, kLocatorBytes = 20;
// Deflate cannot do better: 258 bytes for two bits (zlib's documentation, "Maximum Compression Factor").
constexpr uint64_t kMaxRatio = 1032;

struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

// The end record is the last thing in the file but for a comment of up to 65535 bytes.
Directory find_directory(const Bytes& file) {
  SF_CHECK(file.size >= kEndBytes, file.name, ": a zip archive has at least ", kEndBytes, " bytes, this file has ",
           file.size);
  uint64_t first = file.size - kEndBytes - std::min<uint64_t>(file.size - kEndBytes, 65535);
  for (uint64_t at = file.size - kEndBytes + 1; at-- > first;) {
    ByteReader in(file, at);
    if (in.get<uint32_t>() != kEnd) continue;
    auto disk = in.get<uint16_t>(), first_disk = in.get<uint16_t>(), here = in.get<uint16_t>(),
         entries = in.get<uint16_t>();
    auto bytes = in.get<uint32_t>(), offset = in.get<uint32_t>();
    auto comment = in.get<uint16_t>();
    if (comment != in.left()) continue;
    Directory d{offset, bytes, entries};
    bool large = entries == 0xffff || bytes == 0xffffffff || offset == 0xffffffff;
    uint64_t end = at;
    if (at >= kLocatorBytes) {
      ByteReader locator(file, at - kLocatorBytes);
      if (locator.get<uint32_t>() == kLocator64) {
        auto its_disk = locator.get<uint32_t>();
        auto record = locator.get<uint64_t>();
        auto disks = locator.get<uint32_t>();
        SF_CHECK(its_disk == 0 && disks <= 1, file.name, ": is one part of a split zip archive");
        SF_CHECK(record <= at - kLocatorBytes, file.name, ": the zip64 record cannot begin at byte ", record);
        ByteReader in64(file, record);
        SF_CHECK(in64.get<uint32_t>() == kEnd64, file.name, ": there is no zip64 record at byte ", record);
        in64.skip(8 + 2 + 2);  // its size, versions
        auto disk64 = in64.get<uint32_t>(), first64 = in64.get<uint32_t>();
        auto here64 = in64.get<uint64_t>();
        d.entries = in64.get<uint64_t>();
        d.bytes = in64.get<uint64_t>();
        d.offset = in64.get<uint64_t>();
        SF_CHECK(disk64 == 0 && first64 == 0 && here64 == d.entries, file.name, ": is one part of a split zip archive");
        end = record;
        large = false;
      }
    }
    SF_CHECK(!large, file.name, ": the zip64 record is missing");
    SF_CHECK((disk == 0 || disk == 0xffff) && (first_disk == 0 || first_disk == 0xffff) && here == entries, file.name,
             ": is one part of a split zip archive");
    SF_CHECK(d.offset <= end && d.bytes <= end - d.offset, file.name, ": the directory of ", d.bytes, " bytes at byte ",
             d.offset, " lies outside of the file");
    SF_CHECK(d.entries <= d.bytes / kCentralBytes, file.name, ": ", d.entries, " entries do not fit in a directory of ",
             d.bytes, " bytes");
    return d;
  }
  fail(file.name, ": the end of the zip archive is missing; the file is cut short or damaged");
}

// Sizes of 2^32 and more stand in an extra field, in this order, those that the fixed fields leave out.
void read_zip64(const std::string& file, std::string_view extra, ZipEntry& e, uint64_t& offset) {
  Bytes bytes = Bytes::borrow(extra.data(), extra.size(), file);
  ByteReader in(bytes);
  while (in.left() >= 4) {
    auto id = in.get<uint16_t>(), size = in.get<uint16_t>();
    if (id != 1) {
      if (size > in.left()) return;
      in.skip(size);
      continue;
    }
    for (uint64_t* field : {&e.size, &e.compressed, &offset})
      if (*field == 0xffffffff) *field = in.get<uint64_t>();
    return;
  }
}

// The data of an entry begin behind its local header, which repeats the name and has an extra field of its own.
void locate(const Bytes& file, uint64_t directory, uint64_t offset, ZipEntry& e) {
  SF_CHECK(offset < directory && directory - offset >= kLocalBytes, file.name, ": entry '", e.name, "' begins at byte ",
           offset, ", outside of the data");
  ByteReader in(file, offset);
  SF_CHECK(in.get<uint32_t>() == kLocal, file.name, ": entry '", e.name, "' has no header at byte ", offset);
  in.skip(2 + 2);
  SF_CHECK(in.get<uint16_t>() == e.method, file.name, ": the two headers of entry '", e.name, "' differ");
  in.skip(4 + 12);  // date, sizes and CRC: a streamed entry has zeros here
  auto name = in.get<uint16_t>(), extra = in.get<uint16_t>();
  SF_CHECK(in.text(name) == e.name, file.name, ": the two headers of entry '", e.name, "' differ");
  in.skip(extra);
  e.offset = in.at();
  SF_CHECK(e.offset <= directory && e.compressed <= directory - e.offset, file.name, ": entry '", e.name, "' of ",
           e.compressed, " bytes reaches beyond the data of the file");
}

}  // namespace

bool ZipReader::recognises(const Bytes& file) {
  if (file.size < 4) return false;
  auto magic = ByteReader(file).get<uint32_t>();
  return magic == kLocal || magic == kEnd;
}

ZipReader::ZipReader(const Bytes& file, const ZipReadOptions& options)
    : file_(file), directory_alone_(options.directory_alone) {
  Directory d = find_directory(file);
  directory_ = d.offset;
  SF_CHECK(d.bytes <= options.most_directory, file.name, ": the directory of the zip archive has ", d.bytes,
           " bytes, at most ", options.most_directory, " are read");
  ByteReader in(file.slice(d.offset, d.bytes));
  entries_.reserve(size_t(d.entries));
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (uint64_t i = 0; i < d.entries; ++i) {
    ZipEntry e;
    SF_CHECK(in.get<uint32_t>() == kCentral, file.name, ": the zip directory is damaged at its entry ", i);
    in.skip(2 + 2);
    auto flags = in.get<uint16_t>();
    e.method = in.get<uint16_t>();
    in.skip(4);
    e.crc = in.get<uint32_t>();
    e.compressed = in.get<uint32_t>();
    e.size = in.get<uint32_t>();
    auto name = in.get<uint16_t>(), extra = in.get<uint16_t>(), comment = in.get<uint16_t>();
    in.skip(2 + 2 + 4);
    uint64_t offset = in.get<uint32_t>();
    e.name = in.text(name);
    read_zip64(file.name, in.text(extra), e, offset);
    in.skip(comment);
    SF_CHECK_AS(NotSupported, !(flags & 1), file.name, ": entry '", e.name, "' is encrypted");
    SF_CHECK_AS(NotSupported, e.method == 0 || e.method == 8, file.name, ": entry '", e.name,
                "' is compressed with method ", int(e.method), "; stored and deflated entries are read");
    SF_CHECK(e.method == 8 || e.compressed == e.size, file.name, ": entry '", e.name,
             "' is stored, but its two sizes are ", e.compressed, " and ", e.size);
    SF_CHECK(e.size / kMaxRatio <= e.compressed, file.name, ": entry '", e.name, "' cannot hold ", e.size, " bytes in ",
             e.compressed);
    if (directory_alone_) {
      e.offset = offset;
    } else {
      locate(file, directory_, offset, e);
      ranges.push_back({offset, e.offset + e.compressed});
    }
    entries_.push_back(std::move(e));
  }
  for (size_t i = 0; i < entries_.size(); ++i)
    SF_CHECK(index_.emplace(entries_[i].name, i).second, file.name, ": the name '", entries_[i].name,
             "' appears twice");
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    SF_CHECK(ranges[i - 1].second <= ranges[i].first, file.name, ": two entries overlap at byte ", ranges[i].first);
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  auto it = index_.find(name);
  return it == index_.end() ? nullptr : &entries_[it->second];
}

static uint32_t crc_of(const void* data, uint64_t size) {
  return uint32_t(crc32_z(0, static_cast<const unsigned char*>(data), size_t(size)));
}

static Bytes inflated(const Bytes& in, const ZipEntry& e, uint64_t most = UINT64_MAX) {
  const uint64_t wanted = std::min(e.size, most);
  const bool whole = wanted == e.size;
  std::string out(size_t(wanted), '\0');
  z_stream z{};
  SF_CHECK_AS(RuntimeError, inflateInit2(&z, -MAX_WBITS) == Z_OK, in.name, ": zlib cannot start");
  struct End {
    z_stream& z;
    ~End() { inflateEnd(&z); }
  } guard{z};
  uint64_t read = 0, written = 0;
  int state = Z_OK;
  constexpr uint64_t kStep = uint64_t(1) << 30;  // zlib counts in 32 bits
  while (state == Z_OK && (whole || written < wanted)) {
    z.next_in = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(in.data)) + read;
    z.avail_in = unsigned(std::min(kStep, in.size - read));
    z.next_out = reinterpret_cast<unsigned char*>(out.data()) + written;
    z.avail_out = unsigned(std::min(kStep, wanted - written));
    unsigned before_in = z.avail_in, before_out = z.avail_out;
    state = inflate(&z, Z_NO_FLUSH);
    read += before_in - z.avail_in;
    written += before_out - z.avail_out;
    if (state == Z_OK && before_in == z.avail_in && before_out == z.avail_out) break;
  }
  SF_CHECK((state == Z_STREAM_END || !whole) && written == wanted, in.name, ": the compressed data of entry '", e.name,
           "' are damaged");
  SF_CHECK(!whole || crc_of(out.data(), out.size()) == e.crc, in.name, ": the data of entry '", e.name,
           "' are damaged (CRC)");
  return Bytes::take(std::move(out), in.name);
}

ZipEntry ZipReader::located(const ZipEntry& entry) const {
  ZipEntry out = entry;
  if (directory_alone_) locate(file_, directory_, entry.offset, out);
  return out;
}

Bytes ZipReader::read(const ZipEntry& entry, bool check) const {
  const ZipEntry e = located(entry);
  Bytes bytes = file_.slice(e.offset, e.compressed);
  if (e.method == 8) return inflated(bytes, e);
  if (check)
    SF_CHECK(crc_of(bytes.data, bytes.size) == e.crc, file_.name, ": the data of entry '", e.name,
             "' are damaged (CRC)");
  return bytes;
}

Bytes ZipReader::begin(const ZipEntry& entry, uint64_t most) const {
  const ZipEntry e = located(entry);
  const Bytes bytes = file_.slice(e.offset, e.compressed);
  return e.method == 8 ? inflated(bytes, e, most) : bytes.slice(0, std::min(most, bytes.size));
}

// ---- writing

namespace {

template <class T> void append(std::string& s, T v) { s.append(reinterpret_cast<const char*>(&v), sizeof v); }
constexpr uint16_t kVersion = 20, kVersion64 = 45, kUtf8 = 0x0800, kDate = 0x0021;  // 1980-01-01
constexpr uint64_t kLimit32 = 0xffffffff;
uint32_t small(uint64_t v) { return uint32_t(std::min(v, kLimit32)); }

}  // namespace

ZipWriter::ZipWriter(Sink& sink) : sink_(sink) {}

void ZipWriter::put(const std::string& bytes) {
  sink_.write(bytes.data(), bytes.size());
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, const void* data, uint64_t size, uint64_t alignment) {
  bool large = size >= kLimit32;
  Written w{name, crc_of(data, size), size, at_};
  std::string extra;
  if (large) {
    append<uint16_t>(extra, 1);
    append<uint16_t>(extra, 16);
    append<uint64_t>(extra, size);
    append<uint64_t>(extra, size);
  }
  uint64_t begin = at_ + kLocalBytes + name.size() + extra.size();
  uint64_t padding = (alignment - begin % alignment) % alignment;
  if (padding) {  // an extra field of PyTorch's name, "FB": at least its own four bytes
    if (padding < 4) padding += alignment;
    append<uint16_t>(extra, 0x4246);
    append<uint16_t>(extra, uint16_t(padding - 4));
    extra.append(size_t(padding - 4), 'Z');
  }
  std::string h;
  append<uint32_t>(h, kLocal);
  append<uint16_t>(h, large ? kVersion64 : kVersion);
  append<uint16_t>(h, kUtf8);
  append<uint16_t>(h, 0);
  append<uint16_t>(h, 0);
  append<uint16_t>(h, kDate);
  append<uint32_t>(h, w.crc);
  append<uint32_t>(h, small(size));
  append<uint32_t>(h, small(size));
  append<uint16_t>(h, uint16_t(name.size()));
  append<uint16_t>(h, uint16_t(extra.size()));
  put(h + name + extra);
  if (size) sink_.write(data, size_t(size));
  at_ += size;
  written_.push_back(std::move(w));
}

void ZipWriter::finish() {
  std::string d;
  uint64_t begin = at_;
  for (auto& w : written_) {
    std::string extra;
    if (w.size >= kLimit32 || w.offset >= kLimit32) {
      uint16_t fields = uint16_t((w.size >= kLimit32 ? 16 : 0) + (w.offset >= kLimit32 ? 8 : 0));
      append<uint16_t>(extra, 1);
      append<uint16_t>(extra, fields);
      if (w.size >= kLimit32) append<uint64_t>(extra, w.size), append<uint64_t>(extra, w.size);
      if (w.offset >= kLimit32) append<uint64_t>(extra, w.offset);
    }
    uint16_t version = extra.empty() ? kVersion : kVersion64;
    append<uint32_t>(d, kCentral);
    append<uint16_t>(d, version);
    append<uint16_t>(d, version);
    append<uint16_t>(d, kUtf8);
    append<uint16_t>(d, 0);
    append<uint16_t>(d, 0);
    append<uint16_t>(d, kDate);
    append<uint32_t>(d, w.crc);
    append<uint32_t>(d, small(w.size));
    append<uint32_t>(d, small(w.size));
    append<uint16_t>(d, uint16_t(w.name.size()));
    append<uint16_t>(d, uint16_t(extra.size()));
    append<uint16_t>(d, 0);  // comment
    append<uint16_t>(d, 0);  // disk
    append<uint16_t>(d, 0);
    append<uint32_t>(d, 0);  // attributes
    append<uint32_t>(d, small(w.offset));
    d += w.name + extra;
  }
  uint64_t bytes = d.size(), count = written_.size();
  if (count >= 0xffff || begin + bytes >= kLimit32) {
    uint64_t record = begin + bytes;
    append<uint32_t>(d, kEnd64);
    append<uint64_t>(d, 44);
    append<uint16_t>(d, kVersion64);
    append<uint16_t>(d, kVersion64);
    append<uint32_t>(d, 0);
    append<uint32_t>(d, 0);
    append<uint64_t>(d, count);
    append<uint64_t>(d, count);
    append<uint64_t>(d, bytes);
    append<uint64_t>(d, begin);
    append<uint32_t>(d, kLocator64);
    append<uint32_t>(d, 0);
    append<uint64_t>(d, record);
    append<uint32_t>(d, 1);
  }
  append<uint32_t>(d, kEnd);
  append<uint16_t>(d, 0);
  append<uint16_t>(d, 0);
  append<uint16_t>(d, uint16_t(std::min<uint64_t>(count, 0xffff)));
  append<uint16_t>(d, uint16_t(std::min<uint64_t>(count, 0xffff)));
  append<uint32_t>(d, small(bytes));
  append<uint32_t>(d, small(begin));
  append<uint16_t>(d, 0);
  put(d);
}

}  // namespace sf::io
