// Data sets of videos: clips of a folder's files, with captions. Construction lists the files and checks captions and
// columns; a file is opened when its sample is asked for. One that cannot be decoded, or is shorter than a clip, is
// BrokenSample. Thread-safe, as every Dataset.
#pragma once
#include "scaffolding/data/dataset.h"
#include "scaffolding/data/resize.h"
#include "scaffolding/data/transforms.h"
#include "scaffolding/io/video/video_reader.h"

namespace sf::data {

// Frames start, start + stride, ... of a video: uint8 [num_frames, H, W, 3]. size: empty: as they are; {n}: the shorter
// side becomes n; {height, width}: resized to cover it, and the middle cut out. IndexError where the video ends before.
Tensor read_clip(io::VideoReader& video, int64_t start, int64_t num_frames, int64_t stride = 1, const Shape& size = {},
                 Filter filter = Filter::Bilinear);

struct VideoFolderOptions {
  int64_t num_frames = 16;
  int64_t frame_stride = 1;  // every so many frames of the file
  Shape size;                // of read_clip
  Filter filter = Filter::Bilinear;
  bool random_start = true;    // where the clip begins: by the sample's random numbers, or at the first frame
  TransformPtr transform;      // of each frame [3, H, W], with the same random numbers for all of a clip; may be null
  std::string caption_column;  // of metadata.jsonl, metadata.csv or .json files; empty: text, caption or prompt
  bool allow_missing_captions = false;
  io::VideoReadOptions read;
};

// A folder and those below it, in the order of their paths: .mp4, .m4v, .mov, .mkv, .webm, .gif and .webp files. What
// says their captions is the first of these that is there: metadata.jsonl or metadata.csv in the folder (file_name and
// a caption column), clip.txt or clip.json beside clip.mp4. A file_name may be a folder of pictures.
class VideoFolder final : public Dataset {
 public:
  explicit VideoFolder(const std::string& path, VideoFolderOptions options = {});
  int64_t size() const override { return int64_t(items_.size()); }
  // image: uint8 [3, num_frames, H, W], or what `transform` makes of it.
  Sample get(int64_t index, SampleRandom& random) const override;
  std::string sample_name(int64_t index) const override { return item(index).name; }

  bool has_captions() const { return has_captions_; }
  std::string caption(int64_t index) const;
  std::string path(int64_t index) const { return item(index).path; }
  std::string metadata(int64_t index) const;  // the sample's row as JSON; empty where there is none
  const VideoFolderOptions& options() const { return options_; }

 private:
  struct Item {
    std::string name, path;
    std::string caption, json;            // of a table
    std::string caption_file, json_file;  // paths; one of them or none
  };
  const Item& item(int64_t index) const;
  void from_table(const std::string& root, const std::string& file);
  void from_files(const std::string& root);

  VideoFolderOptions options_;
  std::vector<Item> items_;
  bool has_captions_ = false;
};

}  // namespace sf::data
