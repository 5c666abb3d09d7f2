// Animated WebP through libwebpmux.
#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/animation_codecs.h"

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
    struct Owned {
      WebPData data;
      Owned() { WebPDataInit(&data); }
      ~Owned() { WebPDataClear(&data); }
    } o;
    check(WebPAnimEncoderAdd(encoder_, nullptr, int(clock_), nullptr));
    check(WebPAnimEncoderAssemble(encoder_, &o.data));
    return {reinterpret_cast<const char*>(o.data.bytes), o.data.size};
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

}  // namespace

std::unique_ptr<AnimationEncoder> webp_encoder(int64_t height, int64_t width, const AnimationOptions& options) {
  return std::make_unique<WebPEncoder>(height, width, options);
}

}  // namespace sf::io

#else

namespace sf::io {
std::unique_ptr<AnimationEncoder> webp_encoder(int64_t, int64_t, const AnimationOptions&) {
  fail<NotSupported>(
      "this build writes no animated WebP: rebuild with -DSF_WEBP=ON and libwebpmux (Debian: libwebp-dev), or write "
      ".gif");
}
}  // namespace sf::io

#endif
