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

}  // namespace

std::string gif_animation(const Tensors& pixels, const AnimationOptions& options) {
  const int H = int(pixels[0].size(0)), W = int(pixels[0].size(1));
  std::string out;
  int error = 0;
  struct Owned {
    GifFileType* file;
    ~Owned() {
      int ignored;
      if (file) EGifCloseFile(file, &ignored);
    }
  } gif{EGifOpen(&out, append, &error)};
  check(gif.file, nullptr, error);
  EGifSetGifVersion(gif.file, true);
  check(EGifPutScreenDesc(gif.file, W, H, 8, 0, nullptr) == GIF_OK, gif.file, 0);
  // Plays `loop` times: the extension of Netscape 2.0 counts the repetitions after the first.
  if (options.loop != 1) {
    const int64_t again = options.loop == 0 ? 0 : options.loop - 1;
    const GifByteType name[] = "NETSCAPE2.0";
    const GifByteType block[] = {1, GifByteType(again & 255), GifByteType(again >> 8)};
    check(EGifPutExtensionLeader(gif.file, APPLICATION_EXT_FUNC_CODE) == GIF_OK &&
              EGifPutExtensionBlock(gif.file, 11, name) == GIF_OK &&
              EGifPutExtensionBlock(gif.file, 3, block) == GIF_OK && EGifPutExtensionTrailer(gif.file) == GIF_OK,
          gif.file, 0);
  }
  for (size_t i = 0; i < pixels.size(); ++i) {
    GraphicsControlBlock control{DISPOSE_DO_NOT, false, int((options.durations[i] + 5) / 10), NO_TRANSPARENT_COLOR};
    if (control.DelayTime < 1) control.DelayTime = 1;
    GifByteType block[4];
    EGifGCBToExtension(&control, block);
    check(EGifPutExtension(gif.file, GRAPHICS_EXT_FUNC_CODE, 4, block) == GIF_OK, gif.file, 0);
    std::vector<Colour> palette = palette_of(pixels[i], 256);
    std::vector<uint8_t> places = indexed(pixels[i], palette, options.dither);
    Map map(palette);
    check(EGifPutImageDesc(gif.file, 0, 0, W, H, false, map.map) == GIF_OK, gif.file, 0);
    for (int y = 0; y < H; ++y) check(EGifPutLine(gif.file, places.data() + int64_t(y) * W, W) == GIF_OK, gif.file, 0);
  }
  check(EGifCloseFile(std::exchange(gif.file, nullptr), &error) == GIF_OK, nullptr, error);
  return out;
}

}  // namespace sf::io

#else

namespace sf::io {
std::string gif_animation(const Tensors&, const AnimationOptions&) {
  fail<NotSupported>(
      "this build writes no GIF: rebuild with -DSF_GIF=ON and giflib (Debian: libgif-dev), or write .webp");
}
}  // namespace sf::io

#endif
