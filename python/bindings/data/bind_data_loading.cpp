// Pictures, transforms, data sets and the prefetcher: scaffolding._core._data. The Python classes around them are in
// scaffolding/data and scaffolding/utils/data.
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_generator.h"
#include "python/bindings/data/bind_video.h"
#include "scaffolding/data/data.h"
#include "scaffolding/data/prefetch.h"
#include "scaffolding/io/pictures/animation.h"
#include "scaffolding/ops/ops.h"

namespace sf::py {

namespace {

using namespace data;

// File names are bytes; Python's own way to show those that are no UTF-8.
nb::object text(const std::string& s) {
  return steal(PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "surrogateescape"));
}

nb::list texts(const std::vector<std::string>& v) {
  nb::list out;
  for (auto& s : v) out.append(text(s));
  return out;
}

nb::list skipped_list(const std::vector<Skipped>& v) {
  nb::list out;
  for (auto& s : v) out.append(nb::make_tuple(s.index, text(s.name), text(s.reason)));
  return out;
}

nb::dict sample_dict(const Sample& s, bool captions) {
  nb::dict d;
  d["image"] = s.image;
  if (captions) d["text"] = text(s.caption);
  if (s.target) d["label"] = s.target.item_int();
  d["name"] = text(s.name);
  d["index"] = s.index;
  return d;
}

Tensor index_tensor(const std::vector<int64_t>& v) {
  Tensor t = empty({int64_t(v.size())}, kInt64);
  std::copy(v.begin(), v.end(), t.data<int64_t>());
  return t;
}

// A batch, or a list of samples where the prefetcher does not collate, and what was skipped.
nb::tuple taken(Prefetcher& p, bool captions) {
  for (bool ready = false; !ready;) {
    {
      nb::gil_scoped_release release;
      ready = p.ready_within(0.1);
    }
    if (!ready && PyErr_CheckSignals() != 0) throw_python_error();
  }
  Batch b;
  {
    nb::gil_scoped_release release;
    b = p.take();
  }
  nb::object result = nb::none();
  if (!b.samples.empty()) {
    nb::list samples;
    for (auto& s : b.samples) samples.append(sample_dict(s, captions));
    result = samples;
  } else if (b.size() > 0) {
    nb::dict d;
    d["image"] = b.image;
    if (captions) d["text"] = texts(b.caption);
    if (b.target) d["label"] = b.target;
    d["name"] = texts(b.name);
    d["index"] = index_tensor(b.index);
    result = d;
  }
  return nb::make_tuple(result, skipped_list(b.skipped));
}

// The stream of the sample that a Python data set is being asked for in this thread.
thread_local std::optional<SampleRandom> current_random;

// That stream, or one of a seed of the default generator.
SampleRandom random_of_sample() {
  if (current_random) return *current_random;
  int64_t drawn;
  default_generator()->integers_natural(kInt64, &drawn, 1);
  return SampleRandom(uint64_t(drawn));
}

Tensor transformed(const Transform& t, const Tensor& image, std::optional<uint64_t> seed) {
  check_defined("transform", "image", image);
  std::optional<SampleRandom> own;
  if (seed) own.emplace(*seed);
  else if (!current_random) {
    int64_t drawn;
    default_generator()->integers_natural(kInt64, &drawn, 1);
    own.emplace(uint64_t(drawn));
  }
  nb::gil_scoped_release release;
  return t(image, own ? *own : *current_random);
}

std::span<const uint8_t> bytes_of(const nb::bytes& b) {
  return {reinterpret_cast<const uint8_t*>(b.c_str()), b.size()};
}

io::ImageReadOptions read_options(const std::string& mode, int bits, bool orientation,
                                  std::optional<int64_t> max_pixels) {
  return {io::image_mode(mode), bits, orientation, max_pixels};
}

nb::dict info_dict(const io::ImageInfo& i) {
  static const char* modes[] = {"keep", "L", "LA", "RGB", "RGBA"};
  nb::dict d, chunks;
  for (auto& [key, value] : i.text) chunks[text(key)] = text(value);
  d["format"] = io::name(i.format);
  d["width"] = i.width;
  d["height"] = i.height;
  d["mode"] = modes[int(i.mode)];
  d["bits"] = i.bits;
  d["palette"] = i.palette;
  d["orientation"] = i.orientation;
  d["text"] = chunks;
  return d;
}

void bind_images(nb::module_& d) {
  d.def(
      "read_image",
      [](const std::string& path, const std::string& mode, int bits, bool orientation,
         std::optional<int64_t> max_pixels) {
        auto options = read_options(mode, bits, orientation, max_pixels);
        nb::gil_scoped_release release;
        return io::planar_image(io::read_image(path, options));
      },
      nb::arg("path"), nb::arg("mode"), nb::arg("bits"), nb::arg("apply_exif_orientation"),
      nb::arg("max_pixels") = nb::none());
  d.def(
      "decode_image",
      [](const nb::bytes& input, const std::string& mode, int bits, bool orientation, std::optional<int64_t> max_pixels,
         const std::string& name) {
        auto options = read_options(mode, bits, orientation, max_pixels);
        nb::gil_scoped_release release;
        return io::planar_image(io::decode_image(bytes_of(input), name, options));
      },
      nb::arg("input"), nb::arg("mode"), nb::arg("bits"), nb::arg("apply_exif_orientation"),
      nb::arg("max_pixels") = nb::none(), nb::arg("name") = "decode_image");
  d.def("image_info", [](const std::string& path) { return info_dict(io::image_info(path)); });
  d.def("image_info_of",
        [](const nb::bytes& input) { return info_dict(io::image_info(bytes_of(input), "image_info")); });
  auto options = [](int quality, bool lossless, int compression, const std::map<std::string, std::string>& text) {
    return io::ImageWriteOptions{quality, lossless, compression, text};
  };
  d.def("write_image", [options](const std::string& path, const Tensor& image, int quality, bool lossless,
                                 int compression, std::map<std::string, std::string> text) {
    nb::gil_scoped_release release;
    io::write_image(path, image, options(quality, lossless, compression, text));
  });
  d.def("encode_image", [options](const Tensor& image, const std::string& format, int quality, bool lossless,
                                  int compression, std::map<std::string, std::string> text) {
    std::string out;
    {
      nb::gil_scoped_release release;
      out = io::encode_image(image, io::image_format(format), options(quality, lossless, compression, text));
    }
    return nb::bytes(out.data(), out.size());
  });
  d.def("save_animation", [](const std::string& path, const Tensors& frames, double fps, int64_t loop,
                             std::vector<int64_t> durations, int quality, bool lossless, bool dither) {
    nb::gil_scoped_release release;
    io::save_animation(path, frames, {fps, loop, std::move(durations), quality, lossless, dither});
  });
  d.def("can_write_animation", [](const std::string& path) { return io::can_write(io::animation_format(path)); });
  d.def("canny", [](const Tensor& picture, double low, double high) { return canny(picture, low, high); });
  d.def("convert_image", [](const Tensor& image, const std::string& mode) {
    return io::planar_image(io::convert_image(image, io::image_mode(mode)));
  });
}

void bind_transforms(nb::module_& d) {
  nb::class_<AspectBuckets>(d, "AspectBuckets",
                            "Picture sizes of one area by aspect ratio: both sides are multiples of multiple_of, "
                            "height * width <= area, and the longer\n"
                            "side at most max_aspect times the shorter.")
      .def(nb::init<int64_t, int64_t, double>(), nb::arg("area"), nb::arg("multiple_of") = 64,
           nb::arg("max_aspect") = 2.0)
      .def_prop_ro("sizes",
                   [](const AspectBuckets& b) {
                     nb::list out;
                     for (auto& s : b.sizes()) out.append(nb::make_tuple(s.height, s.width));
                     return out;
                   })
      .def("nearest", &AspectBuckets::nearest, nb::arg("height"), nb::arg("width"),
           "The bucket (an index of sizes) of the aspect ratio that is closest to height and width.");
  nb::class_<Transform>(d, "Transform",
                        "A native transform of images [C, H, W]: call it, compose it, give it to a data set.")
      .def("__call__", &transformed, nb::arg("image"), nb::arg("seed") = nb::none())
      .def("__repr__", &Transform::str);
  auto mutable_ptr = [](TransformPtr t) { return std::const_pointer_cast<Transform>(std::move(t)); };
  d.def("resize",
        [=](const Shape& size, const std::string& f) { return mutable_ptr(transforms::resize(size, filter(f))); });
  d.def("compose", [=](nb::list parts) {
    std::vector<TransformPtr> v;
    for (nb::handle p : parts) v.push_back(nb::cast<std::shared_ptr<Transform>>(p));
    return mutable_ptr(transforms::compose(v));
  });
  d.def("center_crop", [=](const Shape& size) { return mutable_ptr(transforms::center_crop(size)); });
  d.def("random_crop", [=](const Shape& size, int64_t padding, double fill) {
    return mutable_ptr(transforms::random_crop(size, padding, fill));
  });
  d.def("random_resized_crop",
        [=](const Shape& size, std::array<double, 2> scale, std::array<double, 2> ratio, const std::string& f) {
          return mutable_ptr(transforms::random_resized_crop(size, scale, ratio, filter(f)));
        });
  d.def("random_horizontal_flip", [=](double p) { return mutable_ptr(transforms::random_horizontal_flip(p)); });
  d.def("random_vertical_flip", [=](double p) { return mutable_ptr(transforms::random_vertical_flip(p)); });
  d.def("pad", [=](const Shape& padding, double fill) { return mutable_ptr(transforms::pad(padding, fill)); });
  d.def("to_float", [=] { return mutable_ptr(transforms::to_float()); });
  d.def("normalize",
        [=](const Floats& mean, const Floats& std) { return mutable_ptr(transforms::normalize(mean, std)); });
  d.def(
      "composite",
      [=](std::optional<std::array<uint8_t, 3>> colour) { return mutable_ptr(transforms::composite(colour)); },
      nb::arg("colour").none());
  using Range = std::array<double, 2>;
  d.def("color_jitter", [=](Range brightness, Range contrast, Range saturation, Range hue) {
    return mutable_ptr(transforms::color_jitter({brightness, contrast, saturation, hue}));
  });
  d.def("grayscale", [=](int64_t channels, double p) { return mutable_ptr(transforms::grayscale(channels, p)); });
  d.def("to_bucket", [=](const AspectBuckets& b, bool random, const std::string& f) {
    return mutable_ptr(transforms::to_bucket(b, random, filter(f)));
  });
  d.def("set_sample_random", [](uint64_t epoch_seed, uint64_t index, uint64_t position) {
    current_random.emplace(epoch_seed, index, position);
  });
  d.def("clear_sample_random", [] { current_random.reset(); });
}

ImageOptions image_options(const std::string& mode, bool orientation, std::optional<int64_t> max_pixels,
                           const std::string& caption_column, bool allow_missing_captions,
                           std::shared_ptr<Transform> transform) {
  return {read_options(mode, 8, orientation, max_pixels), std::move(transform), caption_column, allow_missing_captions};
}

void bind_datasets(nb::module_& d) {
  nb::class_<ImageDataset>(d, "ImageDataset")
      .def("__len__", &ImageDataset::size)
      .def("get",
           [](const ImageDataset& s, int64_t index) {
             SampleRandom random = random_of_sample();
             Sample sample;
             {
               nb::gil_scoped_release release;
               sample = s.get(index, random);
             }
             return sample_dict(sample, s.has_captions());
           })
      .def("name", [](const ImageDataset& s, int64_t i) { return text(s.sample_name(i)); })
      .def("caption", [](const ImageDataset& s, int64_t i) { return text(s.caption(i)); })
      .def("label", &ImageDataset::label)
      .def("metadata", [](const ImageDataset& s, int64_t i) { return text(s.metadata(i)); })
      .def("info", [](const ImageDataset& s, int64_t i) { return info_dict(s.info(i)); })
      .def("picture",
           [](const ImageDataset& s, int64_t i) {
             nb::gil_scoped_release release;
             return io::planar_image(s.picture(i));
           })
      .def("buckets",
           [](const ImageDataset& s, const AspectBuckets& b, int64_t threads) {
             nb::gil_scoped_release release;
             return buckets_of(s, b, threads);
           })
      .def_prop_ro("has_captions", &ImageDataset::has_captions)
      .def_prop_ro("classes", [](const ImageDataset& s) { return texts(s.classes()); })
      .def_prop_ro("skipped", [](const ImageDataset& s) { return skipped_list(s.skipped()); });
  d.def(
      "image_folder",
      [](const std::string& path, const std::string& mode, bool orientation, std::optional<int64_t> max_pixels,
         const std::string& caption_column, bool missing,
         std::shared_ptr<Transform> transform) -> std::shared_ptr<ImageDataset> {
        return std::make_shared<ImageFolder>(
            path, image_options(mode, orientation, max_pixels, caption_column, missing, transform));
      },
      nb::arg("path"), nb::arg("mode"), nb::arg("orientation"), nb::arg("max_pixels").none(), nb::arg("caption_column"),
      nb::arg("missing"), nb::arg("transform").none());
  d.def(
      "web_dataset",
      [](const std::vector<std::string>& paths, const std::string& mode, bool orientation,
         std::optional<int64_t> max_pixels, const std::string& caption_column, bool missing,
         std::shared_ptr<Transform> transform) -> std::shared_ptr<ImageDataset> {
        return std::make_shared<WebDataset>(
            paths, image_options(mode, orientation, max_pixels, caption_column, missing, transform));
      },
      nb::arg("paths"), nb::arg("mode"), nb::arg("orientation"), nb::arg("max_pixels").none(),
      nb::arg("caption_column"), nb::arg("missing"), nb::arg("transform").none());
  d.def(
      "image_files",
      [](const std::vector<std::string>& paths, const std::vector<std::string>& captions, const std::string& mode,
         bool orientation, std::optional<int64_t> max_pixels,
         std::shared_ptr<Transform> transform) -> std::shared_ptr<ImageDataset> {
        return std::make_shared<ImageFiles>(paths, captions,
                                            image_options(mode, orientation, max_pixels, "", false, transform));
      },
      nb::arg("paths"), nb::arg("captions"), nb::arg("mode"), nb::arg("orientation"), nb::arg("max_pixels").none(),
      nb::arg("transform").none());
  d.def("bucket_batches", &bucket_batches);
  nb::class_<Prefetcher>(d, "Prefetcher")
      .def(
          "__init__",
          [](Prefetcher* self, std::shared_ptr<ImageDataset> dataset, int64_t num_workers, uint64_t epoch_seed,
             int64_t first_position, bool collate) {
            new (self) Prefetcher(dataset, {num_workers, epoch_seed, first_position, 0, collate});
          },
          nb::arg("dataset"), nb::arg("num_workers"), nb::arg("epoch_seed"), nb::arg("first_position"),
          nb::arg("collate"))
      .def("submit", &Prefetcher::submit)
      .def_prop_ro("pending", &Prefetcher::pending)
      .def("ready_within", &Prefetcher::ready_within, nb::call_guard<nb::gil_scoped_release>())
      .def("take", &taken, nb::arg("captions"))
      .def("check_any_whole", &Prefetcher::check_any_whole);
}

void bind_video_folder(nb::module_& d) {
  nb::class_<VideoFolder>(d, "VideoFolder")
      .def(
          "__init__",
          [](VideoFolder* self, const std::string& path, int64_t num_frames, int64_t stride, const Shape& size,
             const std::string& interpolation, bool random_start, std::shared_ptr<Transform> transform,
             const std::string& caption_column, bool missing, std::optional<int64_t> max_pixels) {
            new (self) VideoFolder(path, {num_frames,
                                          stride,
                                          size,
                                          filter(interpolation),
                                          random_start,
                                          std::move(transform),
                                          caption_column,
                                          missing,
                                          {.max_pixels = max_pixels}});
          },
          nb::arg("path"), nb::arg("num_frames"), nb::arg("stride"), nb::arg("size"), nb::arg("interpolation"),
          nb::arg("random_start"), nb::arg("transform").none(), nb::arg("caption_column"), nb::arg("missing"),
          nb::arg("max_pixels").none())
      .def("__len__", &VideoFolder::size)
      .def("get",
           [](const VideoFolder& s, int64_t index) {
             SampleRandom random = random_of_sample();
             Sample sample;
             {
               nb::gil_scoped_release release;
               sample = s.get(index, random);
             }
             return nb::make_tuple(sample.image, text(sample.caption));
           })
      .def("name", [](const VideoFolder& s, int64_t i) { return text(s.sample_name(i)); })
      .def("path", [](const VideoFolder& s, int64_t i) { return text(s.path(i)); })
      .def("caption", [](const VideoFolder& s, int64_t i) { return text(s.caption(i)); })
      .def("metadata", [](const VideoFolder& s, int64_t i) { return text(s.metadata(i)); })
      .def_prop_ro("has_captions", &VideoFolder::has_captions);
}

void bind_moving_icons(nb::module_& d) {
  nb::class_<MovingIcons>(d, "MovingIcons")
      .def(
          "__init__",
          [](MovingIcons* self, const std::string& path, int64_t num_frames, int64_t size,
             std::array<int64_t, 2> icon_sizes, int64_t margin, const std::vector<std::string>& splits,
             const std::vector<std::string>& styles, const std::vector<std::string>& left_out_groups,
             double background_probability, double gradient_probability, double keyword_probability,
             double style_dropout) {
            IconOptions reading;
            reading.splits = splits;
            reading.styles = styles;
            reading.left_out_groups = left_out_groups;
            reading.background_probability = background_probability;
            reading.keyword_probability = keyword_probability;
            reading.style_dropout = style_dropout;
            new (self) MovingIcons(std::make_shared<IconDataset>(path, reading),
                                   {num_frames, size, icon_sizes[0], icon_sizes[1], margin, gradient_probability});
          },
          nb::arg("path"), nb::arg("num_frames"), nb::arg("size"), nb::arg("icon_sizes"), nb::arg("margin"),
          nb::arg("splits"), nb::arg("styles"), nb::arg("left_out_groups"), nb::arg("background_probability"),
          nb::arg("gradient_probability"), nb::arg("keyword_probability"), nb::arg("style_dropout"))
      .def("__len__", &MovingIcons::size)
      .def("get",
           [](const MovingIcons& s, int64_t index) {
             SampleRandom random = random_of_sample();
             Sample sample;
             {
               nb::gil_scoped_release release;
               sample = s.get(index, random);
             }
             return nb::make_tuple(sample.image, text(sample.caption), sample.target);
           })
      .def("name", [](const MovingIcons& s, int64_t i) { return text(s.sample_name(i)); })
      .def("caption", [](const MovingIcons& s, int64_t i) { return text(s.icons().icon(i).caption); })
      .def("style", [](const MovingIcons& s, int64_t i) { return text(s.icons().icon(i).style); })
      .def("split", [](const MovingIcons& s, int64_t i) { return text(s.icons().icon(i).split); })
      .def("drawing",
           [](const MovingIcons& s, int64_t i) {
             nb::gil_scoped_release release;
             return io::planar_image(s.icons().drawing(i));
           })
      .def("texts", [](const MovingIcons& s) { return texts(s.texts()); });
}

}  // namespace

void bind_data_loading(nb::module_& m) {
  nb::module_ d = m.def_submodule("_data");
  nb::exception<BrokenSample> broken(d, "BrokenSample", PyExc_ValueError);
  broken.doc() = "A sample whose file is damaged or gone. A DataLoader skips it and warns.";
  broken.attr("__module__") = "scaffolding.data";
  bind_images(d);
  bind_transforms(d);
  bind_datasets(d);
  bind_video(d);
  bind_video_folder(d);
  bind_moving_icons(d);
}

}  // namespace sf::py
