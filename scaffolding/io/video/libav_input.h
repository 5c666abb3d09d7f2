// A file of bytes that libav takes apart, and the one stream of it that is read. Private to libscaffolding_video.so.
#pragma once
#include "scaffolding/io/file.h"
#include "scaffolding/io/video/libav.h"

namespace sf::io::libav {

class Input {
 public:
  // At its beginning. Of video streams pictures that are a cover do not count. ValueError naming the file where it is
  // damaged or has no such stream.
  Input(const Bytes& file, AVMediaType kind);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  AVFormatContext* context() const { return demuxer_.get(); }
  const AVStream& stream() const { return *demuxer_->streams[index_]; }
  int index() const { return index_; }

 private:
  static int read_bytes(void* self, uint8_t* to, int bytes);
  static int64_t seek_bytes(void* self, int64_t offset, int whence);
  Bytes file_;
  uint64_t at_ = 0;  // in the file
  Owned<AVIOContext> bytes_;
  Owned<AVFormatContext> demuxer_;  // reads bytes_, and so goes before it
  int index_ = -1;
};

}  // namespace sf::io::libav
