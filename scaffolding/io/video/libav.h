// libav's objects with owners, and its errors as ours. Private to libscaffolding_video.so.
#pragma once
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <string>

namespace sf::io::libav {

struct Free {
  void operator()(AVCodecContext* p) const { avcodec_free_context(&p); }
  void operator()(AVFrame* p) const { av_frame_free(&p); }
  void operator()(AVPacket* p) const { av_packet_free(&p); }
  void operator()(SwsContext* p) const { sws_freeContext(p); }
  void operator()(AVFormatContext* p) const {  // of a file that is written or read
    if (p->oformat) {
      avio_closep(&p->pb);
      avformat_free_context(p);
    } else {
      avformat_close_input(&p);
    }
  }
  void operator()(AVIOContext* p) const {  // of our own functions
    av_freep(&p->buffer);
    avio_context_free(&p);
  }
};
template <class T> using Owned = std::unique_ptr<T, Free>;

struct Dictionary {
  AVDictionary* entries = nullptr;
  ~Dictionary() { av_dict_free(&entries); }
  void set(const char* key, const std::string& value) { av_dict_set(&entries, key, value.c_str(), 0); }
};

inline std::string error_text(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE];
  return av_strerror(error, text, sizeof text) == 0 ? text : "error " + std::to_string(error);
}

// Where colours of a video are converted: exact rounding, chroma at every pixel.
constexpr int kScaleFlags = SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP | SWS_BITEXACT;

}  // namespace sf::io::libav
