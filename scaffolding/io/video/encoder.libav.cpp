// Writing mp4, mov, mkv and webm, and what libscaffolding_video.so offers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/io/video/frame_codecs.h"
#include "scaffolding/io/video/libav.h"
#include "scaffolding/io/video/libav_decoder.h"
#include "scaffolding/io/video/libav_sound.h"
#include "scaffolding/io/video/libav_still.h"

namespace sf::io::libav {

namespace {

std::vector<std::string> encoders_of(VideoFormat format) {
  if (format == VideoFormat::WebM) return {"libvpx-vp9"};
  return {"libx264", "libopenh264", "mpeg4"};
}

const AVCodec* encoder_of(VideoFormat format, const VideoOptions& o) {
  const std::vector<std::string> all = encoders_of(format);
  std::string names;
  for (auto& name : all) names += (names.empty() ? "" : ", ") + name;
  SF_CHECK(o.encoder.empty() || std::find(all.begin(), all.end(), o.encoder) != all.end(), "save_video: encoder of ",
           name(format), " must be one of ", names, ", got '", o.encoder, "'");
  for (auto& name : o.encoder.empty() ? all : std::vector{o.encoder})
    if (const AVCodec* codec = avcodec_find_encoder_by_name(name.c_str())) return codec;
  fail<NotSupported>("save_video: libav was built without ", o.encoder.empty() ? names : o.encoder, ", which ",
                     name(format), " needs; install one that has it (Debian's libavcodec59), or write .gif or .webp");
}

class Encoder final : public FrameSink {
 public:
  Encoder(const std::string& path, VideoFormat format, int64_t height, int64_t width, const VideoOptions& o)
      : path_(path), file_(path) {
    const AVCodec* codec = encoder_of(format, o);
    // MPEG-4 counts its clock in 16 bits.
    rate_ = av_d2q(o.fps, 65535);
    const bool even = format == VideoFormat::WebM || (width % 2 == 0 && height % 2 == 0);
    SF_CHECK(even, "save_video: ", codec->name, " takes even sizes only, got ", width, " x ", height,
             "; crop or pad the frames, or write .webm, .gif or .webp");
    SF_CHECK(width <= 16384 && height <= 16384, "save_video: sides may have 16384 pixels, got ", width, " x ", height);
    open_codec(codec, int(height), int(width), o);
    open_file(format, o);
    frame_.reset(av_frame_alloc());
    rgb_.reset(av_frame_alloc());
    packet_.reset(av_packet_alloc());
    SF_CHECK_AS(OutOfMemory, frame_ && rgb_ && packet_, "save_video: libav has no memory");
    for (auto& [f, pixels] : {std::pair{frame_.get(), codec_->pix_fmt}, std::pair{rgb_.get(), AV_PIX_FMT_RGB24}}) {
      f->format = pixels;
      f->width = codec_->width;
      f->height = codec_->height;
      check(av_frame_get_buffer(f, 0), "no memory");
    }
    colours_.reset(sws_getContext(codec_->width, codec_->height, AV_PIX_FMT_RGB24, codec_->width, codec_->height,
                                  codec_->pix_fmt, kScaleFlags, nullptr, nullptr, nullptr));
    SF_CHECK_AS(RuntimeError, colours_, "save_video: libswscale converts no colours");
    const int* bt709 = sws_getCoefficients(SWS_CS_ITU709);
    sws_setColorspaceDetails(colours_.get(), bt709, 1, bt709, 0, 0, 1 << 16, 1 << 16);
  }
  void add(const Tensor& frame) override {
    const size_t row = size_t(codec_->width) * 3;
    for (int y = 0; y < codec_->height; ++y)
      std::memcpy(rgb_->data[0] + int64_t(y) * rgb_->linesize[0], frame.data<uint8_t>() + size_t(y) * row, row);
    check(av_frame_make_writable(frame_.get()), "no memory");
    check(sws_scale(colours_.get(), rgb_->data, rgb_->linesize, 0, codec_->height, frame_->data, frame_->linesize),
          "its colours cannot be converted");
    frame_->pts = count_++;
    send(frame_.get());
    if (sound_) sound_->write_until(double(count_) * av_q2d(codec_->time_base));
  }

  void finish() override {
    send(nullptr);
    if (sound_) sound_->finish();
    check(av_write_trailer(format_.get()), "the file cannot be finished");
    check(avio_closep(&format_->pb), "the file cannot be written");
    file_.commit();
  }

  const char* encoder() const override { return codec_->codec->name; }

 private:
  void check(int result, const char* what) const {
    SF_CHECK_AS(RuntimeError, result >= 0, "save_video: ", path_, ": ", what, ": ", error_text(result));
  }

  void open_codec(const AVCodec* codec, int height, int width, const VideoOptions& o) {
    codec_.reset(avcodec_alloc_context3(codec));
    SF_CHECK_AS(OutOfMemory, codec_, "save_video: libav has no memory");
    const std::string name = codec->name;
    codec_->width = width;
    codec_->height = height;
    codec_->pix_fmt = AV_PIX_FMT_YUV420P;  // what every player shows
    codec_->time_base = av_inv_q(rate_);
    codec_->framerate = rate_;
    codec_->colorspace = AVCOL_SPC_BT709;
    codec_->color_primaries = AVCOL_PRI_BT709;
    codec_->color_trc = AVCOL_TRC_BT709;
    codec_->color_range = AVCOL_RANGE_MPEG;
    codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    codec_->thread_count = std::clamp(num_threads(), 1, 16);
    const double coarse = 100 - o.quality;  // 0 to 99
    Dictionary how;
    if (name == "libx264") {
      how.set("crf", std::to_string(std::min(51., 8 + coarse / 2)));
    } else if (name == "libvpx-vp9") {
      how.set("crf", std::to_string(int(std::lround(std::min(63., 12 + coarse * 0.55)))));
      how.set("cpu-used", "3");
      how.set("row-mt", "1");
      codec_->bit_rate = 0;  // the quality alone decides
    } else if (name == "mpeg4") {
      codec_->flags |= AV_CODEC_FLAG_QSCALE;
      codec_->global_quality = int(std::lround(FF_QP2LAMBDA * (2 + coarse * 0.2)));
    } else {  // Cisco's encoder knows rates of bits only: 0.3 for each pixel at 80
      const double bits = 0.3 * std::exp2((o.quality - 80) / 12.) * width * height * o.fps;
      codec_->bit_rate = int64_t(std::clamp(bits, 2e4, 2e8));
    }
    const int opened = avcodec_open2(codec_.get(), codec, &how.entries);
    SF_CHECK_AS(RuntimeError, opened >= 0, "save_video: ", name, " takes no frames of ", width, " x ", height, " at ",
                o.fps, " a second: ", error_text(opened));
  }

  void open_file(VideoFormat format, const VideoOptions& o) {
    const char* muxer = format == VideoFormat::MKV ? "matroska" : name(format);
    AVFormatContext* made = nullptr;
    check(avformat_alloc_output_context2(&made, nullptr, muxer, nullptr), "libav writes no such files");
    format_.reset(made);
    stream_ = avformat_new_stream(made, nullptr);
    SF_CHECK_AS(OutOfMemory, stream_, "save_video: libav has no memory");
    stream_->time_base = codec_->time_base;
    stream_->avg_frame_rate = rate_;
    check(avcodec_parameters_from_context(stream_->codecpar, codec_.get()), "no memory");
    if (o.audio) sound_.emplace(path_, format, o, made);
    for (auto& [key, value] : o.metadata) av_dict_set(&format_->metadata, key.c_str(), value.c_str(), 0);
    format_->flags |= AVFMT_FLAG_BITEXACT;  // the same frames make the same file
    const std::string place = "file:" + file_.temporary();
    format_->url = av_strdup(place.c_str());  // read again by faststart
    check(avio_open(&format_->pb, place.c_str(), AVIO_FLAG_WRITE), "cannot open");
    Dictionary how;
    if (format == VideoFormat::MP4 || format == VideoFormat::MOV) how.set("movflags", "+faststart");
    check(avformat_write_header(format_.get(), &how.entries), "the file cannot be begun");
  }

  void send(const AVFrame* frame) {
    check(avcodec_send_frame(codec_.get(), frame), "a frame cannot be encoded");
    for (;;) {
      const int got = avcodec_receive_packet(codec_.get(), packet_.get());
      if (got == AVERROR(EAGAIN) || got == AVERROR_EOF) return;
      check(got, "a frame cannot be encoded");
      packet_->duration = 1;
      av_packet_rescale_ts(packet_.get(), codec_->time_base, stream_->time_base);
      packet_->stream_index = stream_->index;
      check(av_interleaved_write_frame(format_.get(), packet_.get()), "cannot write");
    }
  }

  std::string path_;
  ReplacingFile file_;
  AVRational rate_;
  Owned<AVCodecContext> codec_;
  Owned<AVFrame> frame_, rgb_;
  Owned<AVPacket> packet_;
  Owned<SwsContext> colours_;
  Owned<AVFormatContext> format_;
  AVStream* stream_ = nullptr;
  std::optional<SoundStream> sound_;  // writes into format_
  int64_t count_ = 0;
};

std::unique_ptr<FrameSink> sink(const std::string& path, VideoFormat format, int64_t height, int64_t width,
                                const VideoOptions& options) {
  return std::make_unique<Encoder>(path, format, height, width, options);
}

void check_options(VideoFormat format, const VideoOptions& options) {
  encoder_of(format, options);
  if (options.audio) SoundStream::check(format, options);
}

}  // namespace
}  // namespace sf::io::libav

extern "C" const sf::io::VideoLibrary* scaffolding_video_library() {
  static const sf::io::VideoLibrary library = [] {
    av_log_set_level(AV_LOG_QUIET);  // the library throws and never prints
    av_max_alloc(size_t(1) << 30);   // of one block: tables whose sizes a file makes up
    return sf::io::VideoLibrary{SF_VERSION,
                                sf::io::libav::sink,
                                sf::io::libav::check_options,
                                sf::io::libav::decoded_source,
                                sf::io::libav::decoded_sound,
                                sf::io::libav::compressed_still};
  }();
  return &library;
}
