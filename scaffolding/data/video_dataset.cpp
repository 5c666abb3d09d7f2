#include "scaffolding/data/video_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "scaffolding/core/utf8.h"
#include "scaffolding/data/folder_files.h"
#include "scaffolding/data/metadata.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {

namespace fs = std::filesystem;

namespace {

bool is_video(const std::string& name) {
  const std::string s = lower_suffix(name);
  for (const char* known : {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".gif", ".webp"})
    if (s == known) return true;
  return false;
}

struct Sides {
  int64_t height, width;
};
Sides scaled(const Shape& size, int64_t height, int64_t width) {
  if (size.size() == 1) {  // transforms::resize's rounding
    const auto longer = int64_t(double(size[0]) * double(std::max(height, width)) / double(std::min(height, width)));
    return height <= width ? Sides{size[0], longer} : Sides{longer, size[0]};
  }
  const double by = std::max(double(size[0]) / double(height), double(size[1]) / double(width));
  return {std::max<int64_t>(size[0], std::llround(double(height) * by)),
          std::max<int64_t>(size[1], std::llround(double(width) * by))};
}

// frame: uint8 [H, W, 3]; the result is contiguous.
Tensor fitted(const Tensor& frame, const Shape& size, Filter filter) {
  if (size.size() == 0) return frame;
  const Sides to = scaled(size, frame.size(0), frame.size(1));
  Tensor x = frame;
  if (to.height != frame.size(0) || to.width != frame.size(1))
    x = resize(frame.permute({2, 0, 1}), to.height, to.width, filter).permute({1, 2, 0});
  if (size.size() == 2)
    x = x.narrow(0, (to.height - size[0]) / 2, size[0]).narrow(1, (to.width - size[1]) / 2, size[1]);
  return x.contiguous();
}

void check_clip(const char* op, int64_t num_frames, int64_t stride, const Shape& size) {
  constexpr int64_t kMost = 1 << 20;
  SF_CHECK(num_frames > 0 && num_frames <= kMost, op, ": the number of frames must be 1 to ", kMost, ", got ",
           num_frames);
  SF_CHECK(stride > 0 && stride <= kMost, op, ": the stride of frames must be 1 to ", kMost, ", got ", stride);
  SF_CHECK(size.size() <= 2 && std::all_of(size.begin(), size.end(), [](int64_t n) { return n > 0 && n <= 65535; }), op,
           ": size must be a number of pixels or a height and a width, got ", size);
}

}  // namespace

Tensor read_clip(io::VideoReader& video, int64_t start, int64_t num_frames, int64_t stride, const Shape& size,
                 Filter filter) {
  check_clip("read_video", num_frames, stride, size);
  SF_CHECK_AS(IndexError, start >= 0 && start < video.size() && (num_frames - 1) <= (video.size() - 1 - start) / stride,
              "read_video: ", video.name(), " has ", video.size(), " frames, too few for ", num_frames, " from frame ",
              start, " on with stride ", stride);
  Tensor clip;
  for (int64_t i = 0; i < num_frames; ++i) {
    const Tensor frame = fitted(video.frame(start + i * stride), size, filter);
    if (!clip) clip = empty({num_frames, frame.size(0), frame.size(1), 3}, kUInt8);
    std::memcpy(clip.data<uint8_t>() + size_t(i) * frame.nbytes(), frame.data_ptr(), frame.nbytes());
  }
  return clip;
}

VideoFolder::VideoFolder(const std::string& path, VideoFolderOptions options) : options_(std::move(options)) {
  check_clip("VideoFolder", options_.num_frames, options_.frame_stride, options_.size);
  std::error_code none;
  SF_CHECK(fs::is_directory(path, none), "VideoFolder: there is no folder '", path, "'");
  for (const char* table : {"metadata.jsonl", "metadata.csv"})
    if (std::string file = (fs::path(path) / table).string(); items_.empty() && fs::is_regular_file(file, none))
      from_table(path, file);
  if (items_.empty()) from_files(path);
}

void VideoFolder::from_table(const std::string& root, const std::string& file) {
  const std::string text = text_of(file);
  const Metadata table = file.ends_with("l") ? read_jsonl(text, file, options_.caption_column)
                                             : read_csv(text, file, options_.caption_column);
  for (auto& row : table.rows) {
    SF_CHECK(stays_inside(row.file_name), file, ": file_name must be a path below the folder, got '", row.file_name,
             "'");
    items_.push_back({row.file_name, (fs::path(root) / row.file_name).string(), row.caption.value_or(""), row.json});
  }
  SF_CHECK(!items_.empty(), file, ": has no rows");
  has_captions_ = !table.caption_column.empty();
}

void VideoFolder::from_files(const std::string& root) {
  const std::vector<std::string> names = files_below(root, "VideoFolder");
  auto beside = [&](const std::string& name, const char* suffix) {
    const std::string file = fs::path(name).replace_extension(suffix).generic_string();
    return std::binary_search(names.begin(), names.end(), file) ? (fs::path(root) / file).string() : std::string();
  };
  int64_t with_caption = 0;
  std::string without;
  for (auto& name : names) {
    if (!is_video(name)) continue;
    Item it{.name = name, .path = (fs::path(root) / name).string()};
    if (options_.caption_column.empty()) it.caption_file = beside(name, ".txt");
    if (it.caption_file.empty()) it.json_file = beside(name, ".json");
    const bool captioned = !it.caption_file.empty() || !it.json_file.empty();
    with_caption += captioned;
    if (!captioned && without.empty()) without = name;
    items_.push_back(std::move(it));
  }
  SF_CHECK(!items_.empty(), "VideoFolder: '", root, "': holds no videos (.mp4, .m4v, .mov, .mkv, .webm, .gif, .webp)");
  has_captions_ = with_caption > 0;
  SF_CHECK(has_captions_ || options_.caption_column.empty(), "VideoFolder: caption_column '", options_.caption_column,
           "' needs a metadata.jsonl, a metadata.csv or .json files in '", root, "'");
  SF_CHECK(!has_captions_ || with_caption == size() || options_.allow_missing_captions,
           "VideoFolder: ", size() - with_caption, " of ", size(), " videos in '", root,
           "' have no caption file, the first is '", without, "'; write them, or pass allow_missing_captions");
}

const VideoFolder::Item& VideoFolder::item(int64_t index) const {
  SF_CHECK_AS(IndexError, index >= 0 && index < size(), "VideoFolder: index must be 0 to ", size() - 1, ", got ",
              index);
  return items_[size_t(index)];
}

std::string VideoFolder::caption(int64_t index) const {
  const Item& it = item(index);
  std::string text = it.caption;
  if (!it.caption_file.empty()) text = trimmed(text_of(it.caption_file));
  if (!it.json_file.empty()) {
    std::string key = options_.caption_column;
    text = json_caption(text_of(it.json_file), it.json_file, key);
  }
  SF_CHECK(is_utf8(text), it.name, ": has a caption that is not UTF-8");
  return text;
}

std::string VideoFolder::metadata(int64_t index) const {
  const Item& it = item(index);
  return it.json_file.empty() ? it.json : text_of(it.json_file);
}

Sample VideoFolder::get(int64_t index, SampleRandom& random) const {
  const Item& it = item(index);
  const auto& o = options_;
  Sample s;
  s.name = it.name;
  s.index = index;
  Tensor clip;
  try {
    if (has_captions_) s.caption = caption(index);
    io::VideoReader video(it.path, o.read);
    const int64_t span = (o.num_frames - 1) * o.frame_stride + 1;
    SF_CHECK(video.size() >= span, it.path, ": has ", video.size(), " frames, a clip of ", o.num_frames,
             " with stride ", o.frame_stride, " needs ", span);
    const int64_t start = o.random_start ? random.below(video.size() - span + 1) : 0;
    clip = read_clip(video, start, o.num_frames, o.frame_stride, o.size, o.filter);
  } catch (const NotSupported&) {
    throw;  // of this build, not of the video
  } catch (const Error& e) {
    throw BrokenSample(e.what());
  }
  if (!o.transform) {
    s.image = clip.permute({3, 0, 1, 2}).contiguous();
    return s;
  }
  const SampleRandom same = random;
  Tensors frames;
  for (int64_t i = 0; i < o.num_frames; ++i) {
    SampleRandom of_frame = same;
    frames.push_back((*o.transform)(clip.select(0, i).permute({2, 0, 1}), of_frame).contiguous());
  }
  s.image = stack(frames, 1);
  return s;
}

}  // namespace sf::data
