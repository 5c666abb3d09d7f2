#include "apps/cli/clips.h"

#include "apps/cli/output_file.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/video/video_writer.h"

namespace sf::cli {

void check_clip_output(const char* option, const std::string& path, double fps) {
  SF_CHECK(fps >= 0.01 && fps <= 1000, "--fps: must be from 0.01 to 1000, got ", fps);
  std::string why_not;
  const io::VideoFormat format = io::video_format(path);
  SF_CHECK_AS(NotSupported, io::can_write(format, &why_not), option, ": ", why_not);
  check_output(option, path);
}

bool is_frame_folder(const std::string& path) { return io::video_format(path) == io::VideoFormat::Pictures; }

void write_clip(const std::string& path, const Tensors& frames, double fps, const std::string& title,
                const std::string& settings) {
  io::VideoOptions options{.fps = fps};
  if (io::holds_metadata(io::video_format(path))) options.metadata = {{"title", title}, {"comment", settings}};
  io::save_video(path, frames, options);
}

}  // namespace sf::cli
