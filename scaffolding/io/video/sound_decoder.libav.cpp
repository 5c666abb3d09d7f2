#include <algorithm>
#include <cstring>

#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/io/video/libav_input.h"
#include "scaffolding/io/video/libav_sound.h"

namespace sf::io::libav {

namespace {

// What is decoded at all.
constexpr const char* kSoundCodecs =
    "aac,libopus,opus,libvorbis,vorbis,mp3,mp3float,flac,alac,ac3,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_f32le,"
    "pcm_u8";
constexpr int64_t kMostSamples = int64_t(1) << 31;  // of all channels: a file makes up its length

int channels_of(const AVFrame& f) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 24, 100)
  return f.ch_layout.nb_channels;
#else
  return f.channels;
#endif
}

float sample_of(const uint8_t* p, AVSampleFormat kind) {
  auto read = [p](auto v) {
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  switch (kind) {
    case AV_SAMPLE_FMT_U8: return float(int(*p) - 128) / 128;
    case AV_SAMPLE_FMT_S16: return float(read(int16_t())) / 32768;
    case AV_SAMPLE_FMT_S32: return float(read(int32_t())) / 2147483648.f;
    case AV_SAMPLE_FMT_DBL: return float(read(double()));
    default: return read(float());
  }
}

class SoundDecoder {
 public:
  explicit SoundDecoder(const Bytes& file) : file_(file), input_(file, AVMEDIA_TYPE_AUDIO) {
    packet_.reset(av_packet_alloc());
    frame_.reset(av_frame_alloc());
    SF_CHECK_AS(OutOfMemory, packet_ && frame_, file_.name, ": libav has no memory");
    open_codec();
  }

  Audio read() {
    bool more = true;
    while (more) {
      more = next_packet();
      const int sent = avcodec_send_packet(codec_.get(), more ? packet_.get() : nullptr);
      if (sent < 0 && sent != AVERROR_EOF) damaged(error_text(sent));
      receive();
    }
    if (channels_.empty() || channels_[0].empty()) damaged("it has no samples");
    const auto n = int64_t(channels_[0].size());
    Tensor x = empty({int64_t(channels_.size()), n}, kFloat32, Device{});
    for (size_t c = 0; c < channels_.size(); ++c)
      std::memcpy(x.data<float>() + int64_t(c) * n, channels_[c].data(), size_t(n) * sizeof(float));
    return {x, rate_};
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const { fail(file_.name, ": its sound cannot be read: ", why); }

  void open_codec() {
    const AVCodecParameters& p = *input_.stream().codecpar;
    const AVCodec* codec = avcodec_find_decoder(p.codec_id);
    SF_CHECK_AS(NotSupported, codec, file_.name, ": its sound is stored as ", avcodec_get_name(p.codec_id),
                ", which libav was built without");
    codec_.reset(avcodec_alloc_context3(codec));
    SF_CHECK_AS(OutOfMemory, codec_, file_.name, ": libav has no memory");
    if (int e = avcodec_parameters_to_context(codec_.get(), &p); e < 0) damaged(error_text(e));
    codec_->pkt_timebase = input_.stream().time_base;
    codec_->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER;
    Dictionary how;
    how.set("codec_whitelist", kSoundCodecs);
    const int opened = avcodec_open2(codec_.get(), codec, &how.entries);
    SF_CHECK(opened >= 0, file_.name, ": ", codec->name, " cannot read its sound: ", error_text(opened));
  }

  bool next_packet() {
    for (;;) {
      av_packet_unref(packet_.get());
      const int got = av_read_frame(input_.context(), packet_.get());
      if (got == AVERROR_EOF) return false;
      if (got < 0) damaged(error_text(got));
      if (packet_->stream_index == input_.index()) return true;
    }
  }

  void receive() {
    for (;;) {
      const int got = avcodec_receive_frame(codec_.get(), frame_.get());
      if (got == AVERROR(EAGAIN) || got == AVERROR_EOF) return;
      if (got < 0) damaged(error_text(got));
      take();
    }
  }

  void take() {
    const int channels = channels_of(*frame_), n = frame_->nb_samples;
    if (channels < 1 || channels > kMostAudioChannels) damaged("it has " + std::to_string(channels) + " channels");
    if (channels_.empty()) channels_.resize(size_t(channels)), rate_ = frame_->sample_rate;
    if (size_t(channels) != channels_.size() || frame_->sample_rate != rate_) damaged("it changes on the way");
    if (rate_ < 1 || rate_ > kMostSamplingRate) damaged("it has " + std::to_string(rate_) + " samples a second");
    if ((int64_t(channels_[0].size()) + n) * channels > kMostSamples) damaged("it is too long");
    const auto format = AVSampleFormat(frame_->format), kind = av_get_packed_sample_fmt(format);
    const bool planar = av_sample_fmt_is_planar(format), known = kind != AV_SAMPLE_FMT_S64;
    if (!known) damaged("its samples are of a kind that is not known here");
    const int width = av_get_bytes_per_sample(format), step = planar ? width : width * channels;
    for (int c = 0; c < channels; ++c) {
      const uint8_t* from = frame_->extended_data[planar ? c : 0] + (planar ? 0 : c * width);
      for (int i = 0; i < n; ++i) channels_[size_t(c)].push_back(sample_of(from + int64_t(i) * step, kind));
    }
  }

  Bytes file_;
  Input input_;
  Owned<AVCodecContext> codec_;
  Owned<AVPacket> packet_;
  Owned<AVFrame> frame_;
  std::vector<std::vector<float>> channels_;
  int64_t rate_ = 0;
};

}  // namespace

Audio decoded_sound(const Bytes& file) { return SoundDecoder(file).read(); }

}  // namespace sf::io::libav
