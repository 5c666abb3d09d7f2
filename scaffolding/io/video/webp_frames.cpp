// Animated WebP through libwebpdemux; a still picture is a video of one frame. Transparent pixels are shown over white.
#include <cstring>

#include "scaffolding/io/video/frame_codecs.h"

#ifdef SF_WITH_WEBP_ANIMATION
#include <webp/decode.h>
#include <webp/demux.h>
#endif

namespace sf::io {

bool is_webp(const Bytes& file) {
  return file.size >= 12 && !std::memcmp(file.data, "RIFF", 4) && !std::memcmp(file.data + 8, "WEBP", 4);
}

#ifdef SF_WITH_WEBP_ANIMATION

namespace {

class WebPSource final : public FrameSource {
 public:
  WebPSource(const Bytes& file, const FrameLimits& limits) : file_(file) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(file_.data);
    WebPBitstreamFeatures features;
    SF_CHECK(WebPGetFeatures(bytes, size_t(file_.size), &features) == VP8_STATUS_OK, file_.name,
             ": is no whole WebP animation");
    check_frame_size(file_.name, features.width, features.height, limits);
    info.width = features.width, info.height = features.height;
    info.format = name(VideoFormat::WebP);
    info.codec = "webp";
    WebPAnimDecoderOptions how;
    SF_CHECK_AS(RuntimeError, WebPAnimDecoderOptionsInit(&how), "libwebpdemux's version does not fit its headers");
    how.color_mode = MODE_RGBA;
    const WebPData data{bytes, size_t(file_.size)};
    decoder_.reset(WebPAnimDecoderNew(&data, &how));
    SF_CHECK(decoder_, file_.name, ": is no whole WebP animation");
    WebPAnimInfo what;
    SF_CHECK_AS(RuntimeError, WebPAnimDecoderGetInfo(decoder_.get(), &what), file_.name, ": libwebpdemux fails");
    check_frame_count(file_.name, what.frame_count, limits);
    SF_CHECK(what.frame_count > 0, file_.name, ": has no frames");
    frames_ = what.frame_count;
    std::vector<int64_t> milliseconds;
    WebPIterator it;
    for (int more = WebPDemuxGetFrame(WebPAnimDecoderGetDemuxer(decoder_.get()), 1, &it); more;
         more = WebPDemuxNextFrame(&it))
      milliseconds.push_back(it.duration > 0 ? it.duration : 100);  // 100: as browsers show it
    WebPDemuxReleaseIterator(&it);
    SF_CHECK(int64_t(milliseconds.size()) == frames_, file_.name, ": is a damaged WebP animation");
    if (features.has_animation) set_times(info, milliseconds);
  }
  int64_t size() const override { return frames_; }

  void read(int64_t frame, uint8_t* rgb) override {
    if (frame < shown_ || failed_) {
      WebPAnimDecoderReset(decoder_.get());
      shown_ = -1;
      failed_ = false;
    }
    for (; shown_ < frame; ++shown_) {
      int ignored;
      failed_ = !WebPAnimDecoderGetNext(decoder_.get(), &canvas_, &ignored);
      SF_CHECK(!failed_, file_.name, ": is a damaged WebP animation: frame ", shown_ + 1, " cannot be decoded");
    }
    const uint8_t* from = canvas_;
    for (int64_t i = 0; i < info.width * info.height; ++i, from += 4)
      for (int c = 0; c < 3; ++c) *rgb++ = uint8_t((from[c] * from[3] + 255 * (255 - from[3]) + 127) / 255);
  }

 private:
  struct Delete {
    void operator()(WebPAnimDecoder* d) const { WebPAnimDecoderDelete(d); }
  };
  Bytes file_;
  std::unique_ptr<WebPAnimDecoder, Delete> decoder_;
  uint8_t* canvas_ = nullptr;  // the decoder's: RGBA, straight alpha
  int64_t frames_ = 0, shown_ = -1;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<FrameSource> webp_source(const Bytes& file, const FrameLimits& limits) {
  return std::make_unique<WebPSource>(file, limits);
}

#else

std::unique_ptr<FrameSource> webp_source(const Bytes& file, const FrameLimits&) {
  fail<NotSupported>(file.name,
                     ": this build reads no animated WebP: rebuild with -DSF_WEBP=ON and libwebpdemux "
                     "(Debian: libwebp-dev)");
}

#endif

}  // namespace sf::io
