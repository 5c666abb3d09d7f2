#include "scaffolding/data/image_dataset.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <unordered_map>

#include "scaffolding/core/utf8.h"
#include "scaffolding/data/folder_files.h"

namespace sf::data {

namespace fs = std::filesystem;

namespace {

bool is_picture(const std::string& name) {
  const std::string s = lower_suffix(name);
  return s == ".png" || s == ".jpg" || s == ".jpeg" || s == ".webp";
}

Tensor label_tensor(int64_t label) {
  Tensor t = empty({}, kInt64);
  *t.data<int64_t>() = label;
  return t;
}

// a-{000..002}.tar: a-000.tar, a-001.tar, a-002.tar
std::vector<std::string> expanded(const std::string& path) {
  size_t open = path.find('{'), dots = path.find("..", open), close = path.find('}', open);
  if (open == std::string::npos || dots == std::string::npos || close == std::string::npos || dots > close)
    return {path};
  std::string first = path.substr(open + 1, dots - open - 1), last = path.substr(dots + 2, close - dots - 2);
  auto digits = [](const std::string& s) {
    return !s.empty() && s.size() <= 9 && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  SF_CHECK(digits(first) && digits(last) && std::stol(first) <= std::stol(last),
           "WebDataset: a range in braces must be {first..last}, got '", path, "'");
  std::vector<std::string> out;
  for (long i = std::stol(first); i <= std::stol(last); ++i) {
    std::string n = std::to_string(i);
    if (n.size() < first.size()) n.insert(0, first.size() - n.size(), '0');
    out.push_back(path.substr(0, open) + n + path.substr(close + 1));
    SF_CHECK(out.size() <= 1000000, "WebDataset: '", path, "' names more than a million files");
  }
  return out;
}

}  // namespace

struct ImageDataset::Broken {
  std::mutex lock;
  std::map<int64_t, Skipped> samples;
};

ImageDataset::ImageDataset(ImageOptions options) : options_(std::move(options)), broken_(std::make_unique<Broken>()) {}
ImageDataset::~ImageDataset() = default;

const ImageDataset::Item& ImageDataset::item(int64_t index) const {
  SF_CHECK_AS(IndexError, index >= 0 && index < size(), "dataset: index must be 0 to ", size() - 1, ", got ", index);
  return items_[size_t(index)];
}

void ImageDataset::check_not_empty(const std::string& what) const {
  SF_CHECK(!items_.empty(), what, ": holds no pictures (.png, .jpg, .jpeg, .webp)");
}

std::vector<uint8_t> ImageDataset::bytes_of(const Place& p, const std::string& name) const {
  if (p.tar >= 0) return tars_[size_t(p.tar)]->read({name, p.offset, p.size});
  std::string s = text_of(p.path);
  return {s.begin(), s.end()};
}

Tensor ImageDataset::decoded(const Item& it) const {
  if (it.image.tar < 0) return io::read_image(it.image.path, options_.read);
  const TarFile& tar = *tars_[size_t(it.image.tar)];
  return io::decode_image(tar.read({it.name, it.image.offset, it.image.size}), tar.path() + ":" + it.name,
                          options_.read);
}

Tensor ImageDataset::picture(int64_t index) const { return decoded(item(index)); }

io::ImageInfo ImageDataset::info(int64_t index) const {
  const Item& it = item(index);
  if (it.image.tar < 0) return io::image_info(it.image.path);
  const TarFile& tar = *tars_[size_t(it.image.tar)];
  return io::image_info(tar.read({it.name, it.image.offset, it.image.size}), tar.path() + ":" + it.name);
}

std::string ImageDataset::caption(int64_t index) const {
  const Item& it = item(index);
  std::string text = it.caption;
  if (it.caption_file) {
    auto bytes = bytes_of(it.caption_file, it.name);
    text = trimmed({bytes.begin(), bytes.end()});
  } else if (it.json_file && !json_column_.empty()) {
    auto bytes = bytes_of(it.json_file, it.name);
    std::string key = json_column_;
    text = json_caption({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, it.name + " (its .json)", key);
  }
  SF_CHECK(is_utf8(text), it.name, ": has a caption that is not UTF-8");
  return text;
}

std::string ImageDataset::metadata(int64_t index) const {
  const Item& it = item(index);
  if (!it.json_file) return it.json;
  auto bytes = bytes_of(it.json_file, it.name);
  return {bytes.begin(), bytes.end()};
}

Sample ImageDataset::get(int64_t index, SampleRandom& random) const {
  const Item& it = item(index);
  Sample s;
  s.name = it.name;
  s.index = index;
  try {
    if (has_captions_) s.caption = caption(index);
    s.image = decoded(it);
  } catch (const NotSupported&) {
    throw;  // of this build, not of the picture
  } catch (const Error& e) {
    std::lock_guard guard(broken_->lock);
    broken_->samples.try_emplace(index, Skipped{index, it.name, e.what()});
    throw BrokenSample(e.what());
  }
  if (it.label >= 0) s.target = label_tensor(it.label);
  if (options_.transform) s.image = (*options_.transform)(s.image, random);
  return s;
}

std::vector<Skipped> ImageDataset::skipped() const {
  std::lock_guard guard(broken_->lock);
  std::vector<Skipped> out;
  for (auto& [index, s] : broken_->samples) out.push_back(s);
  return out;
}

// ---- ImageFolder

ImageFolder::ImageFolder(const std::string& root, ImageOptions options) : ImageDataset(std::move(options)) {
  std::error_code error;
  SF_CHECK(fs::is_directory(root, error), "ImageFolder: there is no folder '", root, "'");
  auto inside = [&](const std::string& name) { return (fs::path(root) / name).string(); };
  for (std::string file : {"metadata.jsonl", "metadata.csv"})
    if (fs::is_regular_file(inside(file), error)) {
      std::string text = text_of(inside(file));
      from_metadata(root,
                    file == "metadata.jsonl" ? read_jsonl(text, inside(file), options_.caption_column)
                                             : read_csv(text, inside(file), options_.caption_column),
                    inside(file));
      return;
    }
  SF_CHECK(options_.caption_column.empty(), "ImageFolder: caption_column '", options_.caption_column,
           "' needs a metadata.jsonl or metadata.csv in '", root, "'");
  std::vector<std::string> names = files_below(root, "ImageFolder");
  int64_t with_caption = 0;
  std::string without;
  std::vector<std::string> classes;
  bool in_classes = true;
  for (auto& n : names) {
    if (!is_picture(n)) continue;
    Item it;
    it.name = n;
    it.image.path = inside(n);
    std::string caption = fs::path(n).replace_extension(".txt").generic_string();
    if (std::binary_search(names.begin(), names.end(), caption)) {
      it.caption_file.path = inside(caption);
      ++with_caption;
    } else if (without.empty()) without = n;
    size_t slash = n.find('/');
    if (slash == std::string::npos) in_classes = false;
    else if (classes.empty() || classes.back() != n.substr(0, slash)) classes.push_back(n.substr(0, slash));
    items_.push_back(std::move(it));
  }
  check_not_empty("ImageFolder: '" + root + "'");
  has_captions_ = with_caption > 0;
  if (has_captions_) {
    SF_CHECK(with_caption == size() || options_.allow_missing_captions, "ImageFolder: ", size() - with_caption, " of ",
             size(), " pictures in '", root, "' have no caption file, the first is '", without,
             "'; write them, or pass allow_missing_captions");
    return;
  }
  if (!in_classes) return;
  std::sort(classes.begin(), classes.end());  // "a.b/" sorts before "a/" among paths, not among names
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  classes_ = std::move(classes);
  for (auto& it : items_)
    it.label =
        std::lower_bound(classes_.begin(), classes_.end(), it.name.substr(0, it.name.find('/'))) - classes_.begin();
}

void ImageFolder::from_metadata(const std::string& root, const Metadata& m, const std::string& file) {
  for (auto& row : m.rows) {
    SF_CHECK(stays_inside(row.file_name), file, ": file_name must be a path below the folder, got '", row.file_name,
             "'");
    Item it;
    it.name = row.file_name;
    it.image.path = (fs::path(root) / row.file_name).string();
    it.caption = row.caption.value_or("");
    it.json = row.json;
    items_.push_back(std::move(it));
  }
  SF_CHECK(!items_.empty(), file, ": has no rows");
  has_captions_ = !m.caption_column.empty();
}

// ---- WebDataset

WebDataset::WebDataset(const std::vector<std::string>& paths, ImageOptions options) : ImageDataset(std::move(options)) {
  SF_CHECK(!paths.empty(), "WebDataset: needs at least one path");
  for (auto& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      size_t before = tars_.size();
      for (auto& n : files_below(path, "WebDataset"))
        if (n.ends_with(".tar")) add_tar((fs::path(path) / n).string());
      SF_CHECK(tars_.size() > before, "WebDataset: the folder '", path, "' holds no .tar");
    } else {
      for (auto& p : expanded(path)) add_tar(p);
    }
  }
  check_not_empty("WebDataset: '" + paths[0] + "'" + (paths.size() > 1 ? " and the others" : ""));
}

void WebDataset::add_tar(const std::string& path) {
  tars_.push_back(std::make_unique<TarFile>(path));
  const TarFile& tar = *tars_.back();
  auto place = [&](const TarFile::Member& m) { return Place{int(tars_.size()) - 1, m.offset, m.size, {}}; };
  auto text = [&](const TarFile::Member& m) {
    auto bytes = tar.read(m);
    return std::string(bytes.begin(), bytes.end());
  };
  size_t before = items_.size();
  for (auto& m : tar.members())
    if (m.name == "metadata.jsonl" || m.name == "metadata.csv") {
      std::string where = path + ":" + m.name;
      Metadata table = m.name.ends_with("l") ? read_jsonl(text(m), where, options_.caption_column)
                                             : read_csv(text(m), where, options_.caption_column);
      std::unordered_map<std::string_view, const TarFile::Member*> by_name;
      for (auto& o : tar.members()) by_name[o.name] = &o;
      for (auto& row : table.rows) {
        auto found = by_name.find(row.file_name);
        SF_CHECK(found != by_name.end(), where, ": the archive has no '", row.file_name, "'");
        Item it;
        it.name = row.file_name;
        it.image = place(*found->second);
        it.caption = row.caption.value_or("");
        it.json = row.json;
        items_.push_back(std::move(it));
      }
      bool captions = !table.caption_column.empty();
      SF_CHECK(before == 0 || captions == has_captions_, "WebDataset: '", path, "' ", captions ? "has" : "lacks",
               " captions, the archives before it ", captions ? "lack" : "have", " them");
      has_captions_ = captions;
      return;
    }
  // key.ext: the key goes up to the first dot of the file's own name.
  std::unordered_map<std::string, size_t> by_key;
  std::vector<Item> found;
  for (auto& m : tar.members()) {
    size_t slash = m.name.rfind('/'), dot = m.name.find('.', slash == std::string::npos ? 0 : slash + 1);
    if (dot == std::string::npos || dot == (slash == std::string::npos ? 0 : slash + 1)) continue;
    auto [at, is_new] = by_key.try_emplace(m.name.substr(0, dot), found.size());
    if (is_new) found.emplace_back();
    Item& it = found[at->second];
    std::string ext = m.name.substr(dot + 1);
    if (is_picture("x." + ext)) {
      SF_CHECK(!it.image, path, ": has two pictures of one key, '", it.name, "' and '", m.name, "'");
      it.name = m.name;
      it.image = place(m);
    } else if (ext == "txt" || ext == "caption" || ext == "text") {
      it.caption_file = place(m);
    } else if (ext == "json") {
      it.json_file = place(m);
    } else if (ext == "cls") {
      std::string s = trimmed(text(m));
      SF_CHECK(!s.empty() && s.size() <= 9 && s.find_first_not_of("0123456789") == std::string::npos, path, ": '",
               m.name, "' must hold a class number, got '", s.substr(0, 40), "'");
      it.label = std::stol(s);
    }
  }
  bool from_json = !options_.caption_column.empty();
  for (auto& it : found) {
    if (!it.image) continue;
    if (from_json) it.caption_file = {};
    bool captioned = it.caption_file || it.json_file;
    if (items_.empty()) {
      if (!it.caption_file && it.json_file) {
        json_column_ = options_.caption_column;
        auto bytes = bytes_of(it.json_file, it.name);
        json_caption({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path + ":" + it.name + " (its .json)",
                     json_column_);
      }
      SF_CHECK(captioned || !from_json, path, ": '", it.name, "' has no .json to hold caption_column '",
               options_.caption_column, "'");
      has_captions_ = captioned;
    }
    SF_CHECK(captioned == has_captions_ || (has_captions_ && options_.allow_missing_captions), path, ": '", it.name,
             "' ", captioned ? "has" : "lacks", " a caption, the samples before it ", captioned ? "lack" : "have",
             " one; complete them, or pass allow_missing_captions");
    items_.push_back(std::move(it));
  }
}

// ---- ImageFiles

ImageFiles::ImageFiles(const std::vector<std::string>& paths, const std::vector<std::string>& captions,
                       ImageOptions options)
    : ImageDataset(std::move(options)) {
  SF_CHECK(!paths.empty(), "ImageFiles: needs at least one path");
  SF_CHECK(captions.empty() || captions.size() == paths.size(), "ImageFiles: captions must be none or one for each of ",
           paths.size(), " paths, got ", captions.size());
  SF_CHECK(options_.caption_column.empty(), "ImageFiles: has no columns; pass captions instead of caption_column");
  for (size_t i = 0; i < paths.size(); ++i) {
    Item it;
    it.name = it.image.path = paths[i];
    if (!captions.empty()) it.caption = captions[i];
    items_.push_back(std::move(it));
  }
  has_captions_ = !captions.empty();
}

}  // namespace sf::data
