// A frame through libx264 and back, without a file.
#include <cstring>

#include "scaffolding/core/error.h"
#include "scaffolding/io/video/libav_still.h"

namespace sf::io::libav {

namespace {

void check(int result, const char* what) {
  SF_CHECK_AS(RuntimeError, result >= 0, "compressed_still: ", what, ": ", error_text(result));
}

template <class T> Owned<T> made(T* p) {
  SF_CHECK_AS(OutOfMemory, p, "compressed_still: libav has no memory");
  return Owned<T>(p);
}

Owned<AVFrame> frame_of(int width, int height, AVPixelFormat format) {
  Owned<AVFrame> frame = made(av_frame_alloc());
  frame->format = format, frame->width = width, frame->height = height;
  check(av_frame_get_buffer(frame.get(), 0), "no memory");
  return frame;
}

// As most programs convert: BT.601, chroma by neighbours.
void convert(const AVFrame& from, AVFrame& to) {
  const Owned<SwsContext> colours =
      made(sws_getContext(from.width, from.height, AVPixelFormat(from.format), to.width, to.height,
                          AVPixelFormat(to.format), SWS_BILINEAR, nullptr, nullptr, nullptr));
  check(sws_scale(colours.get(), from.data, from.linesize, 0, from.height, to.data, to.linesize),
        "colours cannot be converted");
}

void copy_rows(uint8_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride, int64_t row, int64_t rows) {
  for (int64_t y = 0; y < rows; ++y) std::memcpy(to + y * to_stride, from + y * from_stride, size_t(row));
}

Owned<AVCodecContext> encoder_for(int width, int height, int crf) {
  const AVCodec* codec = avcodec_find_encoder_by_name("libx264");
  SF_CHECK_AS(NotSupported, codec, "compressed_still: libav was built without libx264 (Debian's libavcodec59 has it); ",
              "crf=0 leaves the picture as it is");
  Owned<AVCodecContext> encoder = made(avcodec_alloc_context3(codec));
  encoder->width = width, encoder->height = height;
  encoder->pix_fmt = AV_PIX_FMT_YUV420P;
  encoder->time_base = encoder->framerate = {1, 1};
  encoder->thread_count = 1;
  Dictionary how;
  how.set("crf", std::to_string(crf));
  how.set("preset", "veryfast");
  check(avcodec_open2(encoder.get(), codec, &how.entries), "libx264 takes no such picture");
  return encoder;
}

}  // namespace

Tensor compressed_still(const Tensor& picture, int crf) {
  const int height = int(picture.size(0)), width = int(picture.size(1));
  const int64_t row = int64_t(width) * 3;
  const Owned<AVFrame> rgb = frame_of(width, height, AV_PIX_FMT_RGB24),
                       yuv = frame_of(width, height, AV_PIX_FMT_YUV420P);
  copy_rows(rgb->data[0], rgb->linesize[0], picture.data<uint8_t>(), row, row, height);
  convert(*rgb, *yuv);
  yuv->pts = 0;

  const Owned<AVCodecContext> encoder = encoder_for(width, height, crf);
  const AVCodec* codec = avcodec_find_decoder(AV_CODEC_ID_H264);
  SF_CHECK_AS(NotSupported, codec, "compressed_still: libav was built without a decoder of H.264");
  const Owned<AVCodecContext> decoder = made(avcodec_alloc_context3(codec));
  decoder->thread_count = 1;
  check(avcodec_open2(decoder.get(), codec, nullptr), "the decoder cannot be opened");
  const Owned<AVPacket> packet = made(av_packet_alloc());
  const Owned<AVFrame> decoded = made(av_frame_alloc());
  for (const AVFrame* next : {static_cast<const AVFrame*>(yuv.get()), static_cast<const AVFrame*>(nullptr)}) {
    check(avcodec_send_frame(encoder.get(), next), "the picture cannot be encoded");
    for (int got = 0; (got = avcodec_receive_packet(encoder.get(), packet.get())) >= 0;) {
      check(avcodec_send_packet(decoder.get(), packet.get()), "the picture cannot be decoded");
      av_packet_unref(packet.get());
    }
  }
  check(avcodec_send_packet(decoder.get(), nullptr), "the picture cannot be decoded");
  check(avcodec_receive_frame(decoder.get(), decoded.get()), "the picture cannot be decoded");
  SF_CHECK_AS(RuntimeError, decoded->width == width && decoded->height == height,
              "compressed_still: the picture came back in another size");
  convert(*decoded, *rgb);
  Tensor out = empty({height, width, 3}, kUInt8);
  copy_rows(out.data<uint8_t>(), row, rgb->data[0], rgb->linesize[0], row, height);
  return out;
}

}  // namespace sf::io::libav
