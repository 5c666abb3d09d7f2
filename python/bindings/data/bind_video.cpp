#include "python/bindings/data/bind_video.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "scaffolding/data/video_dataset.h"
#include "scaffolding/io/audio/wav.h"
#include "scaffolding/io/video/video_writer.h"

namespace sf::py {

namespace {

// Files may hold any bytes.
nb::object unicode(const std::string& s) {
  return steal(PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "surrogateescape"));
}

}  // namespace

void bind_video(nb::module_& d) {
  nb::class_<io::VideoWriter>(d, "VideoWriter")
      .def(
          "__init__",
          [](io::VideoWriter* self, const std::string& path, double fps, int quality, io::VideoText metadata,
             int64_t loop, const std::string& encoder, const std::optional<Tensor>& audio, int64_t audio_sample_rate) {
            new (self) io::VideoWriter(
                path, {fps, quality, std::move(metadata), loop, encoder, audio.value_or(Tensor()), audio_sample_rate});
          },
          nb::arg("path"), nb::arg("fps"), nb::arg("quality"), nb::arg("metadata"), nb::arg("loop"), nb::arg("encoder"),
          nb::arg("audio").none(), nb::arg("audio_sample_rate"))
      .def("append",
           [](io::VideoWriter& w, const Tensor& frame) {
             nb::gil_scoped_release release;
             w.append(frame);
           })
      .def("close",
           [](io::VideoWriter& w) {
             nb::gil_scoped_release release;
             w.close();
           })
      .def("__len__", &io::VideoWriter::size)
      .def_prop_ro("encoder", &io::VideoWriter::encoder);
  nb::class_<io::VideoReader>(d, "VideoReader")
      .def(
          "__init__",
          [](io::VideoReader* self, const std::string& path, std::optional<int64_t> max_pixels, int64_t max_frames,
             int num_threads) {
            nb::gil_scoped_release release;
            new (self) io::VideoReader(path, {max_pixels, max_frames, num_threads});
          },
          nb::arg("path"), nb::arg("max_pixels").none(), nb::arg("max_frames"), nb::arg("num_threads"))
      .def("__len__", &io::VideoReader::size)
      .def("frame",
           [](io::VideoReader& r, int64_t index) {
             nb::gil_scoped_release release;
             return r.frame(index);
           })
      .def("frames",
           [](io::VideoReader& r, const std::vector<int64_t>& indices) {
             nb::gil_scoped_release release;
             return r.frames(indices);
           })
      .def("clip",
           [](io::VideoReader& r, int64_t start, int64_t frames, int64_t stride, const Shape& size,
              const std::string& interpolation) {
             const data::Filter filter = data::filter(interpolation);
             nb::gil_scoped_release release;
             return data::read_clip(r, start, frames, stride, size, filter);
           })
      .def_prop_ro("width", [](const io::VideoReader& r) { return r.info().width; })
      .def_prop_ro("height", [](const io::VideoReader& r) { return r.info().height; })
      .def_prop_ro("fps", [](const io::VideoReader& r) { return r.info().fps; })
      .def_prop_ro("times", [](const io::VideoReader& r) { return r.info().times; })
      .def_prop_ro("format", [](const io::VideoReader& r) { return r.info().format; })
      .def_prop_ro("codec", [](const io::VideoReader& r) { return r.info().codec; })
      .def_prop_ro("metadata", [](const io::VideoReader& r) {
        nb::dict all;
        for (auto& [key, value] : r.info().metadata) all[unicode(key)] = unicode(value);
        return all;
      });
  d.def(
      "save_wav",
      [](const std::string& path, const Tensor& audio, int64_t sampling_rate, const std::string& encoding) {
        nb::gil_scoped_release release;
        io::save_wav(path, audio, sampling_rate, io::wav_encoding(encoding));
      },
      nb::arg("path"), nb::arg("audio"), nb::arg("sampling_rate"), nb::arg("encoding"));
  d.def("load_audio", [](const std::string& path, bool wav_only) {
    io::Audio audio;
    {
      nb::gil_scoped_release release;
      audio = wav_only ? io::load_wav(path) : io::load_audio(path);
    }
    return nb::make_tuple(audio.samples, audio.sampling_rate);
  });
  d.def("why_no_video", [](const std::string& path) -> nb::object {
    std::string why;
    if (io::can_write(io::video_format(path), &why)) return nb::none();
    return unicode(why);
  });
}

}  // namespace sf::py
