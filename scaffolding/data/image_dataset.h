// Data sets of pictures: folders, WebDataset tars, lists of files. Construction lists the samples and checks captions
// and columns; pictures are opened when a sample is asked for. One that cannot be decoded is BrokenSample,
// and remembered.
// Thread-safe, as every Dataset.
#pragma once
#include "scaffolding/data/dataset.h"
#include "scaffolding/data/metadata.h"
#include "scaffolding/data/tar.h"
#include "scaffolding/data/transforms.h"
#include "scaffolding/io/pictures/image.h"

namespace sf::data {

struct ImageOptions {
  io::ImageReadOptions read{.mode = io::ImageMode::RGB};
  TransformPtr transform;      // may be null
  std::string caption_column;  // of metadata.jsonl, metadata.csv or a tar's .json; empty: text, caption or prompt
  bool allow_missing_captions = false;  // some pictures of a folder without .txt beside them: an empty caption
};

class ImageDataset : public Dataset {
 public:
  ~ImageDataset() override;
  int64_t size() const override { return int64_t(items_.size()); }
  Sample get(int64_t index, SampleRandom& random) const override;
  std::string sample_name(int64_t index) const override { return item(index).name; }

  bool has_captions() const { return has_captions_; }
  std::string caption(int64_t index) const;
  const std::vector<std::string>& classes() const { return classes_; }  // of the labels; empty where there are none
  int64_t label(int64_t index) const { return item(index).label; }      // -1 where there is none
  std::string metadata(int64_t index) const;  // the sample's row as JSON; empty where there is none
  io::ImageInfo info(int64_t index) const;    // of the file's header
  Tensor picture(int64_t index) const;        // decoded, not transformed
  const ImageOptions& options() const { return options_; }

  // What get() found broken so far, each once.
  std::vector<Skipped> skipped() const;

 protected:
  struct Place {  // a file of its own (tar < 0: `path`), or a member of a tar
    int tar = -1;
    uint64_t offset = 0, size = 0;
    std::string path;
    explicit operator bool() const { return tar >= 0 || !path.empty(); }
  };
  struct Item {
    std::string name;
    Place image, caption_file, json_file;
    std::string caption, json;
    int64_t label = -1;
  };
  explicit ImageDataset(ImageOptions options);
  const Item& item(int64_t index) const;
  std::vector<uint8_t> bytes_of(const Place& p, const std::string& name) const;
  void check_not_empty(const std::string& what) const;

  ImageOptions options_;
  std::vector<Item> items_;
  std::vector<std::unique_ptr<TarFile>> tars_;
  std::vector<std::string> classes_;
  bool has_captions_ = false;
  std::string json_column_;  // captions stand in json_file under this key

 private:
  Tensor decoded(const Item& it) const;
  struct Broken;
  std::unique_ptr<Broken> broken_;
};

// A folder and those below it, in the order of their paths. The first of these that is there says what belongs to a
// picture:
// metadata.jsonl or metadata.csv in the folder (file_name and a caption column), picture.txt beside picture.png, else
// the names of the first subfolders are classes and give labels. `n/x.png` is a picture's name.
class ImageFolder : public ImageDataset {
 public:
  explicit ImageFolder(const std::string& path, ImageOptions options = {});

 private:
  void from_metadata(const std::string& root, const Metadata& m, const std::string& file);
};

// Tars of samples key.jpg, key.txt, key.json, key.cls (github.com/webdataset), or of pictures and a metadata.jsonl. A
// path may hold one range in braces (shard-{000..012}.tar) or be a folder of tars.
class WebDataset : public ImageDataset {
 public:
  explicit WebDataset(const std::vector<std::string>& paths, ImageOptions options = {});

 private:
  void add_tar(const std::string& path);
};

// The files named, with a caption each or none at all.
class ImageFiles : public ImageDataset {
 public:
  explicit ImageFiles(const std::vector<std::string>& paths, const std::vector<std::string>& captions = {},
                      ImageOptions options = {});
};

}  // namespace sf::data
