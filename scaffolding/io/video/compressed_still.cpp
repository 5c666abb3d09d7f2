#include "scaffolding/io/video/compressed_still.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/video/frame_codecs.h"
#include "scaffolding/ops/ops.h"

namespace sf::io {

Tensor compressed_still(const Tensor& picture, int64_t crf) {
  const char* who = "compressed_still";
  check_defined(who, "picture", picture);
  SF_CHECK(picture.ndim() == 3 && picture.size(2) == 3 && picture.dtype() == kUInt8 && picture.size(0) >= 2 &&
               picture.size(1) >= 2 && picture.size(0) <= 16384 && picture.size(1) <= 16384,
           who, ": the picture must be uint8 [H, W, 3] of 2 to 16384 pixels a side, got ", picture.dtype(), " ",
           picture.shape());
  SF_CHECK(crf >= 0 && crf <= 51, who, ": crf must be 0 to 51, got ", crf);
  if (crf == 0) return picture;
  std::string why;
  const VideoLibrary* library = video_library(&why);
  SF_CHECK_AS(NotSupported, library, who, ": ", why, "; crf=0 leaves the picture as it is");
  const int64_t height = picture.size(0) / 2 * 2, width = picture.size(1) / 2 * 2;
  return library->still(picture.narrow(0, 0, height).narrow(1, 0, width).contiguous(), int(crf));
}

}  // namespace sf::io
