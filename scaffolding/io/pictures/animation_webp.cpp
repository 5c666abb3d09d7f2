// Animated WebP through libwebpmux.
#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/animation_codecs.h"
#include "scaffolding/io/pictures/image_codecs.h"

#ifdef SF_WITH_WEBP_ANIMATION
#include <webp/encode.h>
#include <webp/mux.h>

namespace sf::io {

namespace {

struct Picture {
  WebPPicture picture;
  Picture() { SF_CHECK_AS(RuntimeError, WebPPictureInit(&picture), "libwebp's version does not fit its headers"); }
  ~Picture() { WebPPictureFree(&picture); }
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
};

struct Assembled {
  WebPData data;
  Assembled() { WebPDataInit(&data); }
  ~Assembled() { WebPDataClear(&data); }
  Assembled(const Assembled&) = delete;
  Assembled& operator=(const Assembled&) = delete;
  std::string text() const { return {reinterpret_cast<const char*>(data.bytes), data.size}; }
};

class WebPEncoder final : public AnimationEncoder {
 public:
  WebPEncoder(int64_t height, int64_t width, const AnimationOptions& options)
      : height_(int(height)), width_(int(width)) {
    WebPAnimEncoderOptions how;
    SF_CHECK_AS(RuntimeError, WebPAnimEncoderOptionsInit(&how) && WebPConfigInit(&config_),
                "libwebpmux's version does not fit its headers");
    how.anim_params.loop_count = int(options.loop);
    config_.quality = float(options.quality);
    config_.lossless = options.lossless;
    encoder_ = WebPAnimEncoderNew(width_, height_, &how);
    SF_CHECK_AS(RuntimeError, encoder_, "save_animation: libwebpmux has no memory");
  }
  ~WebPEncoder() override { WebPAnimEncoderDelete(encoder_); }
  WebPEncoder(const WebPEncoder&) = delete;
  WebPEncoder& operator=(const WebPEncoder&) = delete;

  void add(const Tensor& pixels, int64_t milliseconds) override {
    Picture p;
    p.picture.use_argb = 1;
    p.picture.width = width_;
    p.picture.height = height_;
    SF_CHECK_AS(RuntimeError, WebPPictureImportRGB(&p.picture, pixels.data<uint8_t>(), width_ * 3),
                "save_animation: libwebp has no memory");
    check(WebPAnimEncoderAdd(encoder_, &p.picture, int(clock_), &config_));
    clock_ += milliseconds;
    SF_CHECK(clock_ <= INT32_MAX, "save_animation: WebP's clock ends after 24 days");
  }

  std::string finish() override {
    Assembled file;
    check(WebPAnimEncoderAdd(encoder_, nullptr, int(clock_), nullptr));
    check(WebPAnimEncoderAssemble(encoder_, &file.data));
    return file.text();
  }

 private:
  void check(int done) const {
    SF_CHECK_AS(RuntimeError, done, "save_animation: WebP: ", WebPAnimEncoderGetError(encoder_));
  }
  int height_, width_;
  int64_t clock_ = 0;  // milliseconds so far
  WebPConfig config_;
  WebPAnimEncoder* encoder_ = nullptr;
};

// Still pictures one after the other: WebPAnimEncoder leaves out what hardly differs from the picture before it.
class WebPStills final : public AnimationEncoder {
 public:
  explicit WebPStills(const AnimationOptions& options) {
    how_.quality = options.quality;
    how_.lossless = options.lossless;
    const WebPMuxAnimParams params{.bgcolor = 0xFFFFFFFF, .loop_count = int(options.loop)};
    SF_CHECK_AS(RuntimeError, mux_, "save_animation: libwebpmux has no memory");
    check(WebPMuxSetAnimationParams(mux_.get(), &params));
  }
  void add(const Tensor& pixels, int64_t milliseconds) override {
    const std::string still = webp_encode(pixels, how_);
    WebPMuxFrameInfo frame{};
    frame.bitstream = {reinterpret_cast<const uint8_t*>(still.data()), still.size()};
    frame.id = WEBP_CHUNK_ANMF;
    frame.duration = int(milliseconds);
    frame.dispose_method = WEBP_MUX_DISPOSE_NONE;
    frame.blend_method = WEBP_MUX_NO_BLEND;
    check(WebPMuxPushFrame(mux_.get(), &frame, 1));
  }
  std::string finish() override {
    Assembled file;
    check(WebPMuxAssemble(mux_.get(), &file.data));
    return file.text();
  }

 private:
  static void check(WebPMuxError result) {
    SF_CHECK_AS(RuntimeError, result == WEBP_MUX_OK, "save_animation: libwebpmux fails with error ", int(result));
  }
  struct Delete {
    void operator()(WebPMux* mux) const { WebPMuxDelete(mux); }
  };
  std::unique_ptr<WebPMux, Delete> mux_{WebPMuxNew()};
  ImageWriteOptions how_;
};

}  // namespace

std::unique_ptr<AnimationEncoder> webp_encoder(int64_t height, int64_t width, const AnimationOptions& options,
                                               bool every_picture) {
  if (every_picture) return std::make_unique<WebPStills>(options);
  return std::make_unique<WebPEncoder>(height, width, options);
}

}  // namespace sf::io

#else

namespace sf::io {
std::unique_ptr<AnimationEncoder> webp_encoder(int64_t, int64_t, const AnimationOptions&, bool) {
  fail<NotSupported>(
      "this build writes no animated WebP: rebuild with -DSF_WEBP=ON and libwebpmux (Debian: libwebp-dev), or write "
      ".gif");
}
}  // namespace sf::io

#endif
