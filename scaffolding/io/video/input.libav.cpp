#include <algorithm>
#include <cstring>

#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/io/video/libav_input.h"
#include "scaffolding/io/video/video_container.h"

namespace sf::io::libav {

namespace {
int open_nothing(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) { return AVERROR(EPERM); }
}  // namespace

int Input::read_bytes(void* self, uint8_t* to, int bytes) {
  auto* d = static_cast<Input*>(self);
  const auto n = int(std::min<uint64_t>(uint64_t(bytes), d->file_.size - d->at_));
  if (n <= 0) return AVERROR_EOF;
  std::memcpy(to, d->file_.data + d->at_, size_t(n));
  d->at_ += uint64_t(n);
  return n;
}

int64_t Input::seek_bytes(void* self, int64_t offset, int whence) {
  auto* d = static_cast<Input*>(self);
  const auto size = int64_t(d->file_.size);
  if (whence & AVSEEK_SIZE) return size;
  whence &= ~AVSEEK_FORCE;
  const int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? int64_t(d->at_) : size;
  if (offset < -from || offset > size - from) return AVERROR(EINVAL);
  d->at_ = uint64_t(from + offset);
  return from + offset;
}

Input::Input(const Bytes& file, AVMediaType kind) : file_(file) {
  constexpr int kBuffer = 1 << 16;
  auto* buffer = static_cast<uint8_t*>(av_malloc(kBuffer));
  SF_CHECK_AS(OutOfMemory, buffer, file_.name, ": libav has no memory");
  bytes_.reset(avio_alloc_context(buffer, kBuffer, 0, this, read_bytes, nullptr, seek_bytes));
  AVFormatContext* context = avformat_alloc_context();
  SF_CHECK_AS(OutOfMemory, bytes_ && context, file_.name, ": libav has no memory");
  context->pb = bytes_.get();
  context->flags |= AVFMT_FLAG_CUSTOM_IO;
  context->io_open = open_nothing;  // a file names no other
  const bool matroska = video_container(file_) == VideoContainer::Matroska;
  const int opened =
      avformat_open_input(&context, nullptr, av_find_input_format(matroska ? "matroska" : "mov"), nullptr);
  SF_CHECK(opened >= 0, file_.name, ": cannot be read as a video: ", error_text(opened));  // which freed the context
  demuxer_.reset(context);
  for (unsigned i = 0; i < context->nb_streams; ++i) {
    const AVStream* s = context->streams[i];
    const bool wanted = s->codecpar->codec_type == kind && !(s->disposition & AV_DISPOSITION_ATTACHED_PIC);
    if (wanted && index_ < 0) index_ = int(i);
    else context->streams[i]->discard = AVDISCARD_ALL;
  }
  SF_CHECK(index_ >= 0, file_.name,
           kind == AVMEDIA_TYPE_VIDEO ? ": has no video, only sound or text" : ": has no sound");
}

}  // namespace sf::io::libav
