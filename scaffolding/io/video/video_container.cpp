#include "scaffolding/io/video/video_container.h"

#include <bit>
#include <string_view>

#include "scaffolding/core/error.h"

namespace sf::io {

namespace {

uint64_t big_endian(const Bytes& file, uint64_t at, int bytes) {
  uint64_t v = 0;
  for (int i = 0; i < bytes; ++i) v = v << 8 | uint64_t(file.data[at + uint64_t(i)]);
  return v;
}

std::string_view text(const Bytes& file, uint64_t at, size_t bytes) { return {file.chars() + at, bytes}; }

[[noreturn]] void cut_short(const Bytes& file, uint64_t wanted) {
  fail(file.name, ": was cut short: it has ", file.size, " bytes of ", wanted);
}

// ISO 14496-12: boxes, each with its size and its name.
void check_boxes(const Bytes& file) {
  bool index = false;
  for (uint64_t at = 0; file.size - at >= 8;) {
    uint64_t size = big_endian(file, at, 4), head = 8;
    const std::string_view kind = text(file, at + 4, 4);
    if (size == 1) {
      if (file.size - at < 16) cut_short(file, at + 16);
      size = big_endian(file, at + 8, 8);
      head = 16;
    }
    if (size == 0) size = file.size - at;  // up to the end
    SF_CHECK(size >= head, file.name, ": is damaged: a box of ", size, " bytes at byte ", at);
    index = index || kind == "moov";
    if (size > file.size - at) cut_short(file, size > UINT64_MAX - at ? size : at + size);
    at += size;
  }
  SF_CHECK(index, file.name, ": has no index of its frames (moov): it was cut short, or never finished");
}

// EBML (RFC 8794): the first byte's leading zeros say how many follow; all ones mean that the size is not known.
struct Number {
  uint64_t value = 0, bytes = 0;
  bool known = true;
};
Number number_at(const Bytes& file, uint64_t at) {
  SF_CHECK(at < file.size, file.name, ": was cut short");
  const auto first = uint8_t(file.data[at]);
  Number n;
  n.bytes = uint64_t(std::countl_zero(first)) + 1;
  SF_CHECK(n.bytes <= 8, file.name, ": is damaged: no size at byte ", at);
  if (file.size - at < n.bytes) cut_short(file, at + n.bytes);
  const uint64_t mask = (uint64_t(1) << (7 * n.bytes)) - 1;
  n.value = big_endian(file, at, int(n.bytes)) & mask;
  n.known = n.value != mask;
  return n;
}

void check_segment(const Bytes& file) {
  const Number head = number_at(file, 4);
  const uint64_t start = 4 + head.bytes;
  if (head.value > file.size - start) cut_short(file, start + head.value);
  for (uint64_t at = start + head.value; file.size - at >= 5;) {
    const bool segment = big_endian(file, at, 4) == 0x18538067;
    const Number id = number_at(file, at);  // as long as its first byte says
    const Number size = number_at(file, at + id.bytes);
    if (!size.known) return;  // of a recording that was never finished, which ends wherever it ends
    at += id.bytes + size.bytes;
    if (size.value > file.size - at) cut_short(file, at + size.value);
    at += size.value;
    if (segment) return;
  }
  fail(file.name, ": has no frames: it was cut short, or never finished");
}

}  // namespace

VideoContainer video_container(const Bytes& file) {
  if (file.size >= 8)
    for (std::string_view kind : {"ftyp", "moov", "mdat", "free", "skip", "wide", "pnot"})
      if (text(file, 4, 4) == kind) return VideoContainer::MP4;
  if (file.size >= 5 && text(file, 0, 4) == "\x1A\x45\xDF\xA3") return VideoContainer::Matroska;
  return VideoContainer::None;
}

void check_whole(const Bytes& file, VideoContainer container) {
  if (container == VideoContainer::MP4) check_boxes(file);
  if (container == VideoContainer::Matroska) check_segment(file);
}

}  // namespace sf::io
