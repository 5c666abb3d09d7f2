// GIF through giflib: each picture with a palette of its own.
#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/animation_codecs.h"
#include "scaffolding/io/pictures/palette.h"

#ifdef SF_WITH_GIF
#include <gif_lib.h>

namespace sf::io {

namespace {

void check(bool done, const GifFileType* file, int error) {
  if (done) return;
  const char* why = GifErrorString(file ? file->Error : error);
  fail<RuntimeError>("save_animation: giflib: ", why ? why : "an error without a name");
}

struct Map {
  ColorMapObject* map;
  // GIF's tables have a power of two of colours, two at least.
  explicit Map(const std::vector<Colour>& palette) {
    int size = 2;
    while (size < int(palette.size())) size *= 2;
    map = GifMakeMapObject(size, nullptr);
    SF_CHECK_AS(RuntimeError, map, "save_animation: giflib has no memory");
    for (size_t i = 0; i < palette.size(); ++i) map->Colors[i] = {palette[i][0], palette[i][1], palette[i][2]};
  }
  ~Map() { GifFreeMapObject(map); }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
};

int append(GifFileType* file, const GifByteType* bytes, int count) {
  static_cast<std::string*>(file->UserData)->append(reinterpret_cast<const char*>(bytes), size_t(count));
  return count;
}

class GifEncoder final : public AnimationEncoder {
 public:
  GifEncoder(int64_t height, int64_t width, const AnimationOptions& options)
      : height_(int(height)), width_(int(width)), dither_(options.dither) {
    int error = 0;
    file_.reset(EGifOpen(&bytes_, append, &error));
    GifFileType* file = file_.get();
    check(file, nullptr, error);
    EGifSetGifVersion(file, true);
    check(EGifPutScreenDesc(file, width_, height_, 8, 0, nullptr) == GIF_OK, file, 0);
    // Plays `loop` times: the extension of Netscape 2.0 counts the repetitions after the first.
    if (options.loop == 1) return;
    const int64_t again = options.loop == 0 ? 0 : options.loop - 1;
    const GifByteType name[] = "NETSCAPE2.0";
    const GifByteType block[] = {1, GifByteType(again & 255), GifByteType(again >> 8)};
    check(EGifPutExtensionLeader(file, APPLICATION_EXT_FUNC_CODE) == GIF_OK &&
              EGifPutExtensionBlock(file, 11, name) == GIF_OK && EGifPutExtensionBlock(file, 3, block) == GIF_OK &&
              EGifPutExtensionTrailer(file) == GIF_OK,
          file, 0);
  }
  void add(const Tensor& pixels, int64_t milliseconds) override {
    GraphicsControlBlock control{DISPOSE_DO_NOT, false, int((milliseconds + 5) / 10), NO_TRANSPARENT_COLOR};
    if (control.DelayTime < 1) control.DelayTime = 1;
    GifByteType block[4];
    EGifGCBToExtension(&control, block);
    GifFileType* file = file_.get();
    check(EGifPutExtension(file, GRAPHICS_EXT_FUNC_CODE, 4, block) == GIF_OK, file, 0);
    std::vector<Colour> palette = palette_of(pixels, 256);
    std::vector<uint8_t> places = indexed(pixels, palette, dither_);
    Map map(palette);
    check(EGifPutImageDesc(file, 0, 0, width_, height_, false, map.map) == GIF_OK, file, 0);
    for (int y = 0; y < height_; ++y)
      check(EGifPutLine(file, places.data() + int64_t(y) * width_, width_) == GIF_OK, file, 0);
  }

  std::string finish() override {
    int error = 0;
    check(EGifCloseFile(file_.release(), &error) == GIF_OK, nullptr, error);
    return std::move(bytes_);
  }

 private:
  int height_, width_;
  bool dither_;
  std::string bytes_;
  struct Close {
    void operator()(GifFileType* file) const {
      int ignored;
      EGifCloseFile(file, &ignored);
    }
  };
  std::unique_ptr<GifFileType, Close> file_;  // writes to bytes_, and so goes before it
};

}  // namespace

std::unique_ptr<AnimationEncoder> gif_encoder(int64_t height, int64_t width, const AnimationOptions& options) {
  return std::make_unique<GifEncoder>(height, width, options);
}

}  // namespace sf::io

#else

namespace sf::io {
std::unique_ptr<AnimationEncoder> gif_encoder(int64_t, int64_t, const AnimationOptions&) {
  fail<NotSupported>(
      "this build writes no GIF: rebuild with -DSF_GIF=ON and giflib (Debian: libgif-dev), or write .webp");
}
}  // namespace sf::io

#endif
