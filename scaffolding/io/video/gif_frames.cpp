// GIF (87a and 89a) taken apart: blocks are found at opening, a frame's pixels (LZW) when it is asked for. Transparent
// pixels that nothing lies under are white.
#include <algorithm>
#include <array>
#include <cstring>

#include "scaffolding/io/video/frame_codecs.h"

namespace sf::io {

namespace {

constexpr int kMaxBits = 12;       // of an LZW code
constexpr int64_t kNoDelay = 100;  // milliseconds of a frame that has none, as browsers show it

struct Rectangle {
  int64_t left = 0, top = 0, width = 0, height = 0;
};

struct GifFrame {
  Rectangle at;
  uint64_t palette = 0, data = 0;  // places in the file: of the colours, of the LZW code size
  int colours = 0, transparent = -1, disposal = 0;
  bool interlaced = false;
};

class GifSource final : public FrameSource {
 public:
  GifSource(const Bytes& file, const FrameLimits& limits) : file_(file) {
    need(0, 13);
    info.width = int64_t(u16(6)), info.height = int64_t(u16(8));
    check_frame_size(file_.name, info.width, info.height, limits);
    info.format = name(VideoFormat::GIF);
    info.codec = "gif";
    find_frames(limits);
    canvas_.resize(size_t(info.width * info.height * 3));
  }
  int64_t size() const override { return int64_t(frames_.size()); }

  void read(int64_t frame, uint8_t* rgb) override {
    if (frame < shown_) shown_ = -1;
    while (shown_ < frame) {
      const int64_t next = shown_ + 1;
      shown_ = -1;  // where drawing fails, all begins anew
      draw(next);
      shown_ = next;
    }
    std::memcpy(rgb, canvas_.data(), canvas_.size());
  }

 private:
  uint8_t u8(uint64_t at) const { return uint8_t(file_.data[at]); }
  uint64_t u16(uint64_t at) const { return uint64_t(u8(at)) | uint64_t(u8(at + 1)) << 8; }
  void need(uint64_t at, uint64_t bytes) const {
    SF_CHECK(at <= file_.size && bytes <= file_.size - at, file_.name, ": is no whole GIF: it ends too early");
  }
  [[noreturn]] void damaged(const char* why) const { fail(file_.name, ": is a damaged GIF: ", why); }

  // The end of a chain of blocks, each of a byte that counts it and so many more; a block of none is the last.
  uint64_t after_blocks(uint64_t at) const {
    for (;;) {
      need(at, 1);
      const uint64_t n = u8(at++);
      if (n == 0) return at;
      need(at, n);
      at += n;
    }
  }

  void find_frames(const FrameLimits& limits) {
    uint64_t at = 13;
    uint64_t global_palette = 0;
    int global_colours = 0;
    if (const uint8_t flags = u8(10); flags & 0x80) {
      global_palette = at;
      global_colours = 2 << (flags & 7);
      need(at, uint64_t(global_colours) * 3);
      at += uint64_t(global_colours) * 3;
    }
    std::vector<int64_t> milliseconds;
    GifFrame next;  // what a control block says of the frame behind it
    int64_t delay = 0;
    for (;;) {
      need(at, 1);
      const uint8_t kind = u8(at++);
      if (kind == 0x3B) break;
      if (kind == 0x21) {
        need(at, 2);
        if (u8(at) == 0xF9 && u8(at + 1) == 4) {
          need(at, 7);
          const uint8_t flags = u8(at + 2);
          next.disposal = flags >> 2 & 7;
          next.transparent = flags & 1 ? u8(at + 5) : -1;
          delay = int64_t(u16(at + 3)) * 10;
        }
        at = after_blocks(at + 1);
      } else if (kind == 0x2C) {
        need(at, 9);
        next.at = {int64_t(u16(at)), int64_t(u16(at + 2)), int64_t(u16(at + 4)), int64_t(u16(at + 6))};
        const uint8_t flags = u8(at + 8);
        at += 9;
        next.interlaced = flags & 0x40;
        next.palette = global_palette, next.colours = global_colours;
        if (flags & 0x80) {
          next.palette = at;
          next.colours = 2 << (flags & 7);
          need(at, uint64_t(next.colours) * 3);
          at += uint64_t(next.colours) * 3;
        }
        if (next.colours == 0) damaged("a frame without colours");
        check_frame_size(file_.name, next.at.width, next.at.height, limits);
        next.data = at;
        need(at, 1);
        at = after_blocks(at + 1);
        frames_.push_back(next);
        milliseconds.push_back(delay > 0 ? delay : kNoDelay);
        check_frame_count(file_.name, size(), limits);
        next = {};
        delay = 0;
      } else {
        damaged("a block of an unknown kind");
      }
    }
    if (frames_.empty()) damaged("it has no frame");
    set_times(info, milliseconds);
  }

  // The places in its palette of a frame's pixels, in the order of the file.
  void decode(const GifFrame& f) {
    const int bits = u8(f.data);
    if (bits < 1 || bits > 8) damaged("an impossible size of its codes");
    const auto pixels = size_t(f.at.width * f.at.height);
    places_.resize(pixels);
    const int clear = 1 << bits, end = clear + 1;
    int size = bits + 1, codes = end + 1, last = -1;
    uint8_t first = 0;  // of the text of `last`
    size_t have = 0;
    uint64_t at = f.data + 1, left = u8(at++);  // of the block; blocks were seen to lie inside the file
    uint32_t buffer = 0;
    int buffered = 0;
    while (have < pixels) {
      while (buffered < size) {
        if (left == 0) damaged("a frame ends too early");  // the empty block was reached
        buffer |= uint32_t(u8(at++)) << buffered;
        buffered += 8;
        if (--left == 0) left = u8(at++);
      }
      const int code = int(buffer & ((1u << size) - 1));
      buffer >>= size;
      buffered -= size;
      if (code == clear) {
        size = bits + 1, codes = end + 1, last = -1;
        continue;
      }
      if (code == end) damaged("a frame ends too early");
      if (last < 0) {
        if (code > end) damaged("a code without a meaning");
        first = uint8_t(code);
        places_[have++] = first;
        last = code;
        continue;
      }
      if (code > codes) damaged("a code without a meaning");
      // A code's text backwards: of the code that is only being made, the last one's text and its first place.
      size_t length = 0;
      int c = code;
      if (code == codes) stack_[length++] = first, c = last;
      for (; c > end; c = prefix_[size_t(c)]) stack_[length++] = suffix_[size_t(c)];
      stack_[length++] = first = uint8_t(c);
      for (; length > 0 && have < pixels; --length) places_[have++] = stack_[length - 1];
      if (codes < kCodes) {
        prefix_[size_t(codes)] = uint16_t(last);
        suffix_[size_t(codes)] = first;
        if (++codes == 1 << size && size < kMaxBits) ++size;
      }
      last = code;
    }
  }

  void draw(int64_t index) {
    if (index == 0) std::fill(canvas_.begin(), canvas_.end(), uint8_t(255));
    else dispose(frames_[size_t(index - 1)]);
    const GifFrame& f = frames_[size_t(index)];
    decode(f);
    const Rectangle r = on_canvas(f.at);
    if (f.disposal == 3) {
      saved_.resize(size_t(r.width * r.height * 3));
      for (int64_t y = 0; y < r.height; ++y)
        std::memcpy(saved_.data() + y * r.width * 3, pixel(r.left, r.top + y), size_t(r.width * 3));
    }
    int64_t row = 0, pass = 0;
    for (int64_t i = 0; i < f.at.height; ++i) {
      const int64_t y = f.interlaced ? row : i;
      const uint8_t* places = places_.data() + i * f.at.width;
      if (y < r.height) {
        uint8_t* to = pixel(r.left, r.top + y);
        for (int64_t x = 0; x < r.width; ++x, to += 3)
          if (int(places[x]) != f.transparent) {
            if (places[x] >= f.colours) damaged("a colour that its palette lacks");
            std::memcpy(to, file_.data + f.palette + uint64_t(places[x]) * 3, 3);
          }
      }
      if (!f.interlaced) continue;
      constexpr int64_t starts[] = {0, 4, 2, 1}, steps[] = {8, 8, 4, 2};
      for (row += steps[pass]; pass < 3 && row >= f.at.height;) row = starts[++pass];
    }
  }

  // What becomes of a frame before the next one.
  void dispose(const GifFrame& f) {
    const Rectangle r = on_canvas(f.at);
    for (int64_t y = 0; y < r.height; ++y) {
      if (f.disposal == 2) std::memset(pixel(r.left, r.top + y), 255, size_t(r.width * 3));
      if (f.disposal == 3) std::memcpy(pixel(r.left, r.top + y), saved_.data() + y * r.width * 3, size_t(r.width * 3));
    }
  }

  Rectangle on_canvas(const Rectangle& r) const {
    const int64_t width = std::min(info.width - r.left, r.width), height = std::min(info.height - r.top, r.height);
    return width > 0 && height > 0 ? Rectangle{r.left, r.top, width, height} : Rectangle{};
  }
  uint8_t* pixel(int64_t x, int64_t y) { return canvas_.data() + (y * info.width + x) * 3; }

  static constexpr int kCodes = 1 << kMaxBits;
  Bytes file_;
  std::vector<GifFrame> frames_;
  std::vector<uint8_t> canvas_, places_;
  std::vector<uint8_t> saved_;  // what lay under the frame whose disposal is 3
  int64_t shown_ = -1;          // the frame on the canvas
  std::array<uint16_t, kCodes> prefix_;
  std::array<uint8_t, kCodes> suffix_;
  std::array<uint8_t, kCodes + 1> stack_;
};

}  // namespace

bool is_gif(const Bytes& file) {
  return file.size >= 6 && (!std::memcmp(file.data, "GIF87a", 6) || !std::memcmp(file.data, "GIF89a", 6));
}

std::unique_ptr<FrameSource> gif_source(const Bytes& file, const FrameLimits& limits) {
  return std::make_unique<GifSource>(file, limits);
}

}  // namespace sf::io
