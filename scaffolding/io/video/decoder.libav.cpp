// Frames by their numbers: the packets are listed at opening, and a frame is decoded from the keyframe before it on.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/io/video/libav_decoder.h"
#include "scaffolding/io/video/libav_input.h"
#include "scaffolding/io/video/video_container.h"

namespace sf::io::libav {

namespace {

// What is decoded at all: what clips are stored in, not every codec that libav knows.
constexpr const char* kCodecs =
    "h264,hevc,av1,libdav1d,vp9,libvpx-vp9,vp8,libvpx,mpeg4,mpeg2video,mpeg1video,mjpeg,prores,ffv1,png,rawvideo,"
    "h263,theora,dnxhd,huffyuv,ffvhuff,utvideo";

struct Packet {
  int64_t pts, dts;
  bool key;
};

class Decoder final : public FrameSource {
 public:
  Decoder(const Bytes& file, const FrameLimits& limits) : file_(file), limits_(limits) {
    packet_.reset(av_packet_alloc());
    frame_.reset(av_frame_alloc());
    rgb_.reset(av_frame_alloc());
    SF_CHECK_AS(OutOfMemory, packet_ && frame_ && rgb_, file_.name, ": libav has no memory");
    open_file();
    list_packets();
    open_codec();
    rewind();
    decode(0);
    describe();
  }
  int64_t size() const override { return int64_t(shown_.size()); }

  void read(int64_t frame, uint8_t* rgb) override {
    decode(frame);
    convert(rgb);
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const { fail(file_.name, ": cannot be read as a video: ", why); }

  void open_file() { input_.emplace(file_, AVMEDIA_TYPE_VIDEO); }

  const AVStream& stream() const { return input_->stream(); }

  // The next packet of the video; false at the end.
  bool next_packet() {
    for (;;) {
      av_packet_unref(packet_.get());
      const int got = av_read_frame(input_->context(), packet_.get());
      if (got == AVERROR_EOF) return false;
      if (got < 0) damaged(error_text(got));
      if (packet_->stream_index != input_->index()) continue;
      if (packet_->flags & AV_PKT_FLAG_CORRUPT) damaged("a frame is cut short");
      return true;
    }
  }

  int64_t time_of(const AVPacket& p) const {
    if (p.pts == AV_NOPTS_VALUE && p.dts == AV_NOPTS_VALUE) damaged("a frame has no time");
    return p.pts != AV_NOPTS_VALUE ? p.pts : p.dts;
  }

  void list_packets() {
    const AVCodecParameters& p = *stream().codecpar;
    // Of MPEG-4 the container's size is not believed; the decoder has the limit too.
    if (p.width != 0 || p.height != 0) check_frame_size(file_.name, p.width, p.height, limits_);
    while (next_packet()) {
      const int64_t pts = time_of(*packet_);
      packets_.push_back({pts, packet_->dts, (packet_->flags & AV_PKT_FLAG_KEY) != 0});
      check_frame_count(file_.name, int64_t(packets_.size()), limits_);
      if (!(packet_->flags & AV_PKT_FLAG_DISCARD))
        shown_.push_back(pts);  // the others lie before the first to be shown
      last_duration_ = packet_->duration;
    }
    if (shown_.empty()) damaged("it has no frames");
    std::sort(shown_.begin(), shown_.end());
    if (std::adjacent_find(shown_.begin(), shown_.end()) != shown_.end()) damaged("two frames have the same time");
    places_.resize(shown_.size());
    for (size_t i = 0; i < packets_.size(); ++i)
      if (auto it = std::lower_bound(shown_.begin(), shown_.end(), packets_[i].pts);
          it != shown_.end() && *it == packets_[i].pts)
        places_[size_t(it - shown_.begin())] = i;
  }

  void open_codec() {
    const AVCodecParameters& p = *stream().codecpar;
    const AVCodec* codec = avcodec_find_decoder(p.codec_id);
    SF_CHECK_AS(NotSupported, codec, file_.name, ": is stored as ", avcodec_get_name(p.codec_id),
                ", which libav was built without");
    codec_.reset(avcodec_alloc_context3(codec));
    SF_CHECK_AS(OutOfMemory, codec_, file_.name, ": libav has no memory");
    if (int e = avcodec_parameters_to_context(codec_.get(), &p); e < 0) damaged(error_text(e));
    codec_->pkt_timebase = stream().time_base;
    codec_->thread_count = limits_.num_threads;
    codec_->max_pixels = limits_.max_pixels;
    codec_->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER;
    Dictionary how;
    how.set("codec_whitelist", kCodecs);
    const int opened = avcodec_open2(codec_.get(), codec, &how.entries);
    SF_CHECK(opened >= 0, file_.name, ": ", codec->name, " cannot read it: ", error_text(opened));
  }

  // The decoder begins anew with packet `sent`.
  void begin_with(size_t sent) {
    avcodec_flush_buffers(codec_.get());
    sent_ = begun_ = sent;
    have_ = -1;
    drained_ = waiting_ = false;
  }
  void rewind() {
    open_file();
    begin_with(0);
  }

  // The packet from which on frame `index` can be decoded: the last keyframe that is neither decoded nor shown later.
  size_t keyframe_of(int64_t index) const {
    const int64_t pts = shown_[size_t(index)];
    for (size_t i = places_[size_t(index)] + 1; i-- > 0;)
      if (packets_[i].key && packets_[i].pts <= pts) return i;
    return 0;
  }

  // So that packet `first` is the next one, or one before it.
  void seek(size_t first) {
    const Packet& p = packets_[first];
    const int64_t time = p.dts != AV_NOPTS_VALUE ? p.dts : p.pts;
    if (first == 0 || av_seek_frame(input_->context(), input_->index(), time, AVSEEK_FLAG_BACKWARD) < 0)
      return rewind();
    if (!next_packet()) return rewind();
    const int64_t pts = time_of(*packet_);
    size_t at = first + 1;
    while (at-- > 0)
      if (packets_[at].pts == pts && packets_[at].dts == packet_->dts) break;
    if (at > first) return rewind();  // behind it: only from the start is it sure to come
    begin_with(at);
    waiting_ = true;
  }

  // frame_ is frame `index`.
  void decode(int64_t index) {
    if (index == have_) return;
    const size_t first = keyframe_of(index);
    if (index < have_ || first > sent_) seek(first);
    for (;;) {
      const bool from_the_start = begun_ == 0;
      try {
        return decode_on(index);
      } catch (const Error&) {
        rewind();  // what the file calls a keyframe may need frames before it
        if (from_the_start) throw;
      }
    }
  }

  void decode_on(int64_t index) {
    while (have_ != index) {
      if (have_ > index || !next_frame()) damaged("frame " + std::to_string(index) + " cannot be decoded");
      // The decoder gives a frame the time of its packet.
      const int64_t pts = frame_->pts != AV_NOPTS_VALUE ? frame_->pts : frame_->best_effort_timestamp;
      const auto it = std::lower_bound(shown_.begin(), shown_.end(), pts);
      if (it != shown_.end() && *it == pts) have_ = it - shown_.begin();  // others are decoded and not shown
    }
    check_frame();
  }

  // False when the last one was given out.
  bool next_frame() {
    for (;;) {
      const int got = avcodec_receive_frame(codec_.get(), frame_.get());
      if (got == 0) return true;
      if (got == AVERROR_EOF) return false;
      if (got != AVERROR(EAGAIN)) damaged(error_text(got));
      if (drained_) return false;
      if (std::exchange(waiting_, false) || next_packet()) {
        ++sent_;
        if (int e = avcodec_send_packet(codec_.get(), packet_.get()); e < 0) damaged(error_text(e));
      } else {
        drained_ = true;
        avcodec_send_packet(codec_.get(), nullptr);
      }
    }
  }

  void check_frame() const {
    if (frame_->decode_error_flags || (frame_->flags & AV_FRAME_FLAG_CORRUPT))
      damaged("frame " + std::to_string(have_) + " is damaged");
    check_frame_size(file_.name, frame_->width, frame_->height, limits_);
    if (width_ && (frame_->width != width_ || frame_->height != height_))
      damaged("its frames have different sizes, " + std::to_string(width_) + " x " + std::to_string(height_) + " and " +
              std::to_string(frame_->width) + " x " + std::to_string(frame_->height));
  }

  // Of frame_ in the layout of the file, upright.
  void convert(uint8_t* to) {
    const auto pixels = AVPixelFormat(frame_->format);
    if (pixels != converts_) {
      colours_.reset(sws_getContext(width_, height_, pixels, width_, height_, AV_PIX_FMT_RGB24, kScaleFlags, nullptr,
                                    nullptr, nullptr));
      SF_CHECK_AS(RuntimeError, colours_, file_.name, ": libswscale converts no such colours");
      converts_ = pixels;
    }
    const bool bt709 = frame_->colorspace == AVCOL_SPC_BT709;
    const bool bt2020 = frame_->colorspace == AVCOL_SPC_BT2020_NCL || frame_->colorspace == AVCOL_SPC_BT2020_CL;
    const int* from = sws_getCoefficients(bt709 ? SWS_CS_ITU709 : bt2020 ? SWS_CS_BT2020 : SWS_CS_ITU601);
    sws_setColorspaceDetails(colours_.get(), from, frame_->color_range == AVCOL_RANGE_JPEG,
                             sws_getCoefficients(SWS_CS_ITU709), 1, 0, 1 << 16, 1 << 16);
    const int scaled =
        sws_scale(colours_.get(), frame_->data, frame_->linesize, 0, height_, rgb_->data, rgb_->linesize);
    SF_CHECK_AS(RuntimeError, scaled == height_, file_.name, ": libswscale fails");
    if (turns_ == 0) {
      const size_t row = size_t(width_) * 3;
      for (int64_t y = 0; y < height_; ++y) std::memcpy(to + size_t(y) * row, stored(y, 0), row);
      return;
    }
    for (int64_t r = 0; r < info.height; ++r)  // clockwise quarter turns
      for (int64_t c = 0; c < info.width; ++c, to += 3)
        std::memcpy(to,
                    turns_ == 1   ? stored(height_ - 1 - c, r)
                    : turns_ == 2 ? stored(height_ - 1 - r, width_ - 1 - c)
                                  : stored(c, width_ - 1 - r),
                    3);
  }
  const uint8_t* stored(int64_t y, int64_t x) const { return rgb_->data[0] + y * rgb_->linesize[0] + x * 3; }

  int turns_of_stream() const {
#if LIBAVFORMAT_VERSION_MAJOR >= 61
    const AVCodecParameters& p = *stream().codecpar;
    const AVPacketSideData* side =
        av_packet_side_data_get(p.coded_side_data, p.nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    const uint8_t* matrix = side && side->size >= 36 ? side->data : nullptr;
#else
    size_t size = 0;
    const uint8_t* matrix = av_stream_get_side_data(&stream(), AV_PKT_DATA_DISPLAYMATRIX, &size);
    if (size < 36) matrix = nullptr;
#endif
    if (!matrix) return 0;
    const double anticlockwise = av_display_rotation_get(reinterpret_cast<const int32_t*>(matrix));
    return std::isnan(anticlockwise) ? 0 : (int(std::lround(-anticlockwise / 90)) % 4 + 4) % 4;
  }

  void describe() {
    width_ = frame_->width, height_ = frame_->height;
    turns_ = turns_of_stream();
    info.width = turns_ % 2 ? height_ : width_;
    info.height = turns_ % 2 ? width_ : height_;
    rgb_->format = AV_PIX_FMT_RGB24;
    rgb_->width = width_, rgb_->height = height_;
    SF_CHECK_AS(OutOfMemory, av_frame_get_buffer(rgb_.get(), 0) >= 0, file_.name, ": libav has no memory");
    const double unit = av_q2d(stream().time_base);
    for (int64_t pts : shown_) info.times.push_back(double(pts - shown_[0]) * unit);
    const double span = info.times.back(), said = av_q2d(stream().avg_frame_rate);  // NaN where it says nothing
    const double mean = span > 0             ? double(size() - 1) / span
                        : last_duration_ > 0 ? 1 / (double(last_duration_) * unit)
                                             : 0;
    // What the file says, unless its frames say otherwise: clocks round.
    const bool fits = mean == 0 || std::abs(double(size() - 1) / said - span) <= std::max(0.02 * span, 1.5 * unit);
    info.fps = said > 0 && said < 1e5 && fits ? said : mean;
    if (!(info.fps > 0)) info.times.clear();
    info.codec = avcodec_get_name(codec_->codec_id);
    info.format = format_name();
    for (const AVDictionaryEntry* e = nullptr;
         (e = av_dict_get(input_->context()->metadata, "", e, AV_DICT_IGNORE_SUFFIX));) {
      std::string key = e->key;
      std::transform(key.begin(), key.end(), key.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
      if (key != "major_brand" && key != "minor_version" && key != "compatible_brands") info.metadata[key] = e->value;
    }
  }

  std::string format_name() const {
    if (video_container(file_) == VideoContainer::MP4) {
      const AVDictionaryEntry* brand = av_dict_get(input_->context()->metadata, "major_brand", nullptr, 0);
      return name(brand && std::string_view(brand->value) == "qt  " ? VideoFormat::MOV : VideoFormat::MP4);
    }
    // Both name themselves in their first bytes.
    const std::string_view head(file_.chars(), size_t(std::min<uint64_t>(file_.size, 64)));
    return name(head.find("webm") != std::string_view::npos ? VideoFormat::WebM : VideoFormat::MKV);
  }

  Bytes file_;
  FrameLimits limits_;
  std::optional<Input> input_;
  std::vector<Packet> packets_;  // in the order of the file, which is that of decoding
  std::vector<int64_t> shown_;   // the time of each frame, ascending
  std::vector<size_t> places_;   // its packet
  int64_t last_duration_ = 0;
  Owned<AVCodecContext> codec_;
  Owned<AVPacket> packet_;
  Owned<AVFrame> frame_, rgb_;
  Owned<SwsContext> colours_;
  AVPixelFormat converts_ = AV_PIX_FMT_NONE;
  int width_ = 0, height_ = 0, turns_ = 0;
  size_t begun_ = 0, sent_ = 0;  // places in packets_: of the first that was sent since it was flushed, of the next
  int64_t have_ = -1;            // the frame that frame_ is
  bool drained_ = false;         // the decoder was told that nothing follows
  bool waiting_ = false;         // packet_ is the one that is sent next
};

}  // namespace

std::unique_ptr<FrameSource> decoded_source(const Bytes& file, const FrameLimits& limits) {
  return std::make_unique<Decoder>(file, limits);
}

}  // namespace sf::io::libav
