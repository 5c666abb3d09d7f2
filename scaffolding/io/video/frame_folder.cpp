// Folders of pictures, one for each frame.
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "scaffolding/io/pictures/image.h"
#include "scaffolding/io/video/frame_codecs.h"
#include "scaffolding/ops/view/view.h"

namespace sf::io {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFps = "fps";  // of the text in each picture

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// folder/before0000after
struct Pictures {
  fs::path folder;
  std::string before, after = ".png";
  size_t digits = 4;

  explicit Pictures(const std::string& path) {
    const fs::path p(path);
    std::string file = p.filename().string();
    const size_t percent = file.find('%');
    if (percent == std::string::npos) {
      folder = path.ends_with('/') ? p.parent_path() : p;
      return;
    }
    size_t end = percent + 1, width = 0;
    for (; end < file.size() && is_digit(file[end]) && end < percent + 4; ++end)
      width = width * 10 + size_t(file[end] - '0');
    SF_CHECK(end < file.size() && file[end] == 'd' && file.find('%', end) == std::string::npos && width <= 20,
             "save_video: the pictures' names must hold one number such as %04d, got '", path, "'");
    folder = p.parent_path().empty() ? fs::path(".") : p.parent_path();
    before = file.substr(0, percent);
    after = file.substr(end + 1);
    digits = width;
  }
  std::string file(int64_t frame) const {
    std::string n = std::to_string(frame);
    return before + std::string(digits > n.size() ? digits - n.size() : 0, '0') + n + after;
  }
  bool matches(const std::string& file) const {
    return file.size() > before.size() + after.size() && file.starts_with(before) && file.ends_with(after) &&
           std::all_of(file.begin() + long(before.size()), file.end() - long(after.size()), is_digit);
  }
};

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::error_code none; it->is_regular_file(none)) names.push_back(it->path().filename().string());
  SF_CHECK_AS(RuntimeError, !error, folder.string(), ": cannot list: ", error.message());
  return names;
}

class FolderSink final : public FrameSink {
 public:
  FolderSink(const std::string& path, const VideoOptions& options) : to_(path) {
    static std::atomic<unsigned> count{0};
    const std::string unique = ".tmp" + std::to_string(getpid()) + "." + std::to_string(count++);
    std::error_code error;
    here_ = fs::exists(to_.folder, error) ? to_.folder / unique : fs::path(to_.folder.string() + unique);
    fs::create_directory(here_, error);
    SF_CHECK_AS(RuntimeError, !error, here_.string(), ": cannot make the folder: ", error.message());
    how_.text = options.metadata;
    char digits[40];
    how_.text[kFps] = std::string(digits, std::to_chars(digits, digits + sizeof digits, options.fps).ptr);
  }
  ~FolderSink() override {
    std::error_code ignored;
    fs::remove_all(here_, ignored);
  }
  FolderSink(const FolderSink&) = delete;
  FolderSink& operator=(const FolderSink&) = delete;

  void add(const Tensor& frame) override {
    write_image((here_ / to_.file(count_++)).string(), frame.permute({2, 0, 1}), how_);
  }
  void finish() override {
    std::error_code error, ignored;
    int64_t taken = 0;
    if (!fs::exists(to_.folder, ignored)) fs::rename(here_, to_.folder, error);
    else
      for (; taken < count_; ++taken) {
        fs::rename(here_ / to_.file(taken), to_.folder / to_.file(taken), error);
        if (error) break;
      }
    if (!error) return;
    while (taken-- > 0) fs::remove(to_.folder / to_.file(taken), ignored);
    fail<RuntimeError>(to_.folder.string(), ": cannot take the pictures: ", error.message());
  }
  const char* encoder() const override { return "libpng"; }

 private:
  Pictures to_;
  fs::path here_;  // where they are until all are there
  ImageWriteOptions how_;
  int64_t count_ = 0;
};

bool is_picture(const std::string& file) {
  std::string s = fs::path(file).extension().string();
  std::transform(s.begin(), s.end(), s.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return s == ".png" || s == ".jpg" || s == ".jpeg" || s == ".webp";
}

// frame2 before frame10.
bool numbers_first(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      size_t m = i, n = j;
      while (m < a.size() && a[m] == '0') ++m;
      while (n < b.size() && b[n] == '0') ++n;
      size_t m_end = m, n_end = n;
      while (m_end < a.size() && is_digit(a[m_end])) ++m_end;
      while (n_end < b.size() && is_digit(b[n_end])) ++n_end;
      if (m_end - m != n_end - n) return m_end - m < n_end - n;
      if (int c = a.compare(m, m_end - m, b, n, n_end - n)) return c < 0;
      i = m_end, j = n_end;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

class FolderSource final : public FrameSource {
 public:
  FolderSource(const std::string& path, const FrameLimits& limits) : from_(path), limits_(limits) {
    const bool any = path.find('%') == std::string::npos;
    for (auto& file : files_in(from_.folder))
      if (any ? is_picture(file) : from_.matches(file)) files_.push_back(file);
    SF_CHECK(!files_.empty(), path, ": holds no pictures (.png, .jpg, .jpeg, .webp)");
    check_frame_count(path, int64_t(files_.size()), limits);
    std::sort(files_.begin(), files_.end(), numbers_first);
    const ImageInfo first = image_info(place(0));
    const bool turned = first.orientation >= 5;
    info.width = turned ? first.height : first.width;
    info.height = turned ? first.width : first.height;
    check_frame_size(place(0), info.width, info.height, limits);
    info.format = name(VideoFormat::Pictures);
    info.codec = name(first.format);
    info.metadata = first.text;
    if (auto fps = info.metadata.extract(kFps)) {
      const std::string& s = fps.mapped();
      double v = 0;
      if (std::from_chars(s.data(), s.data() + s.size(), v).ec == std::errc() && v > 0 && v <= 1000) info.fps = v;
    }
    if (info.fps > 0)
      for (size_t i = 0; i < files_.size(); ++i) info.times.push_back(double(i) / info.fps);
  }
  int64_t size() const override { return int64_t(files_.size()); }
  void read(int64_t frame, uint8_t* rgb) override {
    const Tensor x = read_image(place(frame), {.mode = ImageMode::RGB, .max_pixels = limits_.max_pixels});
    SF_CHECK(x.size(1) == info.height && x.size(2) == info.width, place(frame), ": is ", x.size(2), " x ", x.size(1),
             ", the pictures before it are ", info.width, " x ", info.height);
    const Tensor rows = x.permute({1, 2, 0}).contiguous();
    std::memcpy(rgb, rows.data_ptr(), rows.nbytes());
  }

 private:
  std::string place(int64_t frame) const { return (from_.folder / files_[size_t(frame)]).string(); }
  Pictures from_;
  FrameLimits limits_;
  std::vector<std::string> files_;
};

}  // namespace

void check_folder_sink(const std::string& path) {
  const Pictures to(path);
  std::error_code none;
  const fs::path parent = to.folder.parent_path();
  SF_CHECK_AS(RuntimeError, parent.empty() || fs::is_directory(parent, none), "save_video: there is no folder '",
              parent.string(), "'");
  if (!fs::exists(to.folder, none)) return;
  SF_CHECK_AS(RuntimeError, fs::is_directory(to.folder, none), "save_video: ", to.folder.string(), " is no folder");
  for (auto& file : files_in(to.folder))
    SF_CHECK(!to.matches(file), "save_video: ", to.folder.string(), " holds pictures of another video already (", file,
             "); remove them, or choose another folder");
}

std::unique_ptr<FrameSink> folder_sink(const std::string& path, const VideoOptions& options) {
  return std::make_unique<FolderSink>(path, options);
}

std::unique_ptr<FrameSource> folder_source(const std::string& path, const FrameLimits& limits) {
  return std::make_unique<FolderSource>(path, limits);
}

}  // namespace sf::io
