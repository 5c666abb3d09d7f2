// Animated WebP through libwebpmux.
#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/animation_codecs.h"

#ifdef SF_WITH_WEBP_ANIMATION
#include <webp/encode.h>
#include <webp/mux.h>

namespace sf::io {

std::string webp_animation(const Tensors& pixels, const AnimationOptions& options) {
  const int H = int(pixels[0].size(0)), W = int(pixels[0].size(1));
  WebPAnimEncoderOptions how;
  WebPConfig config;
  SF_CHECK_AS(RuntimeError, WebPAnimEncoderOptionsInit(&how) && WebPConfigInit(&config),
              "libwebpmux's version does not fit its headers");
  how.anim_params.loop_count = int(options.loop);
  config.quality = float(options.quality);
  config.lossless = options.lossless;
  struct Owned {
    WebPAnimEncoder* encoder = nullptr;
    WebPData data;
    ~Owned() {
      WebPAnimEncoderDelete(encoder);
      WebPDataClear(&data);
    }
  } o;
  WebPDataInit(&o.data);
  o.encoder = WebPAnimEncoderNew(W, H, &how);
  SF_CHECK_AS(RuntimeError, o.encoder, "save_animation: libwebpmux has no memory");
  auto check = [&](int done) {
    SF_CHECK_AS(RuntimeError, done, "save_animation: WebP: ", WebPAnimEncoderGetError(o.encoder));
  };
  int64_t at = 0;
  for (size_t i = 0; i < pixels.size(); ++i) {
    struct Picture {
      WebPPicture picture;
      Picture() { SF_CHECK_AS(RuntimeError, WebPPictureInit(&picture), "libwebp's version does not fit its headers"); }
      ~Picture() { WebPPictureFree(&picture); }
    } p;
    p.picture.use_argb = 1;
    p.picture.width = W;
    p.picture.height = H;
    SF_CHECK_AS(RuntimeError, WebPPictureImportRGB(&p.picture, pixels[i].data<uint8_t>(), W * 3),
                "save_animation: libwebp has no memory");
    check(WebPAnimEncoderAdd(o.encoder, &p.picture, int(at), &config));
    at += options.durations[i];
    SF_CHECK(at <= INT32_MAX, "save_animation: WebP's clock ends after 24 days");
  }
  check(WebPAnimEncoderAdd(o.encoder, nullptr, int(at), nullptr));
  check(WebPAnimEncoderAssemble(o.encoder, &o.data));
  return {reinterpret_cast<const char*>(o.data.bytes), o.data.size};
}

}  // namespace sf::io

#else

namespace sf::io {
std::string webp_animation(const Tensors&, const AnimationOptions&) {
  fail<NotSupported>(
      "this build writes no animated WebP: rebuild with -DSF_WEBP=ON and libwebpmux (Debian: libwebp-dev), or write "
      ".gif");
}
}  // namespace sf::io

#endif
