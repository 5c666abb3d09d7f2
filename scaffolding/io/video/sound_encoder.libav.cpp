#include <algorithm>
#include <cmath>

#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/io/video/libav_sound.h"

namespace sf::io::libav {

namespace {

constexpr int64_t kFrame = 1024;  // of encoders that take any number of samples at once

bool takes_rate(const AVCodec* codec, int64_t rate) {
  if (!codec->supported_samplerates) return true;
  for (const int* r = codec->supported_samplerates; *r; ++r)
    if (*r == rate) return true;
  return false;
}

std::string rates_of(const AVCodec* codec) {
  std::vector<int> all;
  for (const int* r = codec->supported_samplerates; *r; ++r) all.push_back(*r);
  std::sort(all.begin(), all.end());
  std::string text;
  for (int r : all) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return text;
}

const AVCodec* sound_encoder_of(VideoFormat format, int64_t rate) {
  const std::vector<const char*> names =
      format == VideoFormat::WebM ? std::vector{"libopus", "libvorbis"} : std::vector{"aac"};
  const AVCodec* there = nullptr;
  for (const char* name : names)
    if (const AVCodec* codec = avcodec_find_encoder_by_name(name)) {
      if (takes_rate(codec, rate)) return codec;
      there = codec;
    }
  SF_CHECK_AS(NotSupported, there, "save_video: libav was built without ", names[0], ", which the sound of ",
              name(format),
              " needs; install one that has it (Debian's libavcodec59), or write the sound beside it "
              "with save_wav");
  fail("save_video: ", there->name, " takes audio_sample_rate ", rates_of(there), ", got ", rate);
}

AVSampleFormat float_format_of(const AVCodec* codec) {
  for (const AVSampleFormat* f = codec->sample_fmts; f && *f != AV_SAMPLE_FMT_NONE; ++f)
    if (*f == AV_SAMPLE_FMT_FLT || *f == AV_SAMPLE_FMT_FLTP) return *f;
  fail<NotSupported>("save_video: libav's ", codec->name, " takes no floating samples");
}

void set_channels(AVCodecContext* codec, AVFrame* frame, int channels) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 24, 100)
  av_channel_layout_default(&codec->ch_layout, channels);
  av_channel_layout_copy(&frame->ch_layout, &codec->ch_layout);
#else
  codec->channels = frame->channels = channels;
  codec->channel_layout = frame->channel_layout = uint64_t(av_get_default_channel_layout(channels));
#endif
}

}  // namespace

void SoundStream::check(VideoFormat format, const VideoOptions& o) { sound_encoder_of(format, o.audio_sample_rate); }

SoundStream::SoundStream(const std::string& path, VideoFormat format, const VideoOptions& o, AVFormatContext* file)
    : path_(path), file_(file), samples_(audio_channels("save_video", o.audio)), rate_(o.audio_sample_rate) {
  const AVCodec* codec = sound_encoder_of(format, rate_);
  codec_.reset(avcodec_alloc_context3(codec));
  frame_.reset(av_frame_alloc());
  packet_.reset(av_packet_alloc());
  SF_CHECK_AS(OutOfMemory, codec_ && frame_ && packet_, "save_video: libav has no memory");
  const auto channels = int(samples_.size(0));
  codec_->sample_fmt = float_format_of(codec);
  codec_->sample_rate = int(rate_);
  codec_->time_base = {1, int(rate_)};
  codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_BITEXACT;
  if (std::string_view(codec->name) == "libvorbis") {
    codec_->flags |= AV_CODEC_FLAG_QSCALE;
    codec_->global_quality = int(std::lround(FF_QP2LAMBDA * o.quality * 0.07));
  } else {  // libav's AAC needs more bits than Opus for the same
    const int64_t bits = std::string_view(codec->name) == "aac" ? 1600 : 1000;
    codec_->bit_rate = int64_t(channels) * std::max(16, o.quality) * bits;
  }
  set_channels(codec_.get(), frame_.get(), channels);
  const int opened = avcodec_open2(codec_.get(), codec, nullptr);
  SF_CHECK_AS(RuntimeError, opened >= 0, "save_video: ", codec->name, " takes no sound of ", channels, " channels at ",
              rate_, " samples a second: ", error_text(opened));
  stream_ = avformat_new_stream(file, nullptr);
  SF_CHECK_AS(OutOfMemory, stream_, "save_video: libav has no memory");
  stream_->time_base = codec_->time_base;
  check(avcodec_parameters_from_context(stream_->codecpar, codec_.get()), "no memory");
  frame_->format = codec_->sample_fmt;
  frame_->sample_rate = int(rate_);
  frame_->nb_samples = int(codec_->frame_size > 0 ? codec_->frame_size : kFrame);
  check(av_frame_get_buffer(frame_.get(), 0), "no memory");
}

void SoundStream::check(int result, const char* what) const {
  SF_CHECK_AS(RuntimeError, result >= 0, "save_video: ", path_, ": ", what, ": ", error_text(result));
}

void SoundStream::encode(int64_t first, int64_t count) {
  if (count > 0) {
    check(av_frame_make_writable(frame_.get()), "no memory");
    frame_->nb_samples = int(count);
    frame_->pts = first;
    const int64_t channels = samples_.size(0), n = samples_.size(1);
    const bool planar = av_sample_fmt_is_planar(codec_->sample_fmt);
    for (int64_t c = 0; c < channels; ++c) {
      const float* from = samples_.data<float>() + c * n + first;
      auto* to = reinterpret_cast<float*>(frame_->extended_data[planar ? c : 0]) + (planar ? 0 : c);
      for (int64_t i = 0; i < count; ++i)  // NaN is silence
        to[i * (planar ? 1 : channels)] = from[i] == from[i] ? std::clamp(from[i], -1.f, 1.f) : 0.f;
    }
  }
  check(avcodec_send_frame(codec_.get(), count > 0 ? frame_.get() : nullptr), "its sound cannot be encoded");
  for (;;) {
    const int got = avcodec_receive_packet(codec_.get(), packet_.get());
    if (got == AVERROR(EAGAIN) || got == AVERROR_EOF) return;
    check(got, "its sound cannot be encoded");
    av_packet_rescale_ts(packet_.get(), codec_->time_base, stream_->time_base);
    packet_->stream_index = stream_->index;
    check(av_interleaved_write_frame(file_, packet_.get()), "cannot write");
  }
}

void SoundStream::write_until(double seconds) {
  const int64_t together = codec_->frame_size > 0 ? codec_->frame_size : kFrame;
  // A whole frame at a time; the last one may be shorter.
  while (at_ + together <= samples_.size(1) && double(at_) < seconds * double(rate_)) {
    encode(at_, together);
    at_ += together;
  }
}

void SoundStream::finish() {
  write_until(double(samples_.size(1)));  // all of them, whatever the rate
  if (at_ < samples_.size(1)) encode(at_, samples_.size(1) - at_);
  encode(0, 0);
}

}  // namespace sf::io::libav
