// Checkpoint files: what scaffolding.serialization, scaffolding.safetensors and scaffolding.io are made of.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind_arguments.h"
#include "bind_object.h"
#include "scaffolding/io/safetensors.h"
#include "scaffolding/io/torch_file.h"

namespace sf::py {

namespace {

using TensorMap = std::map<std::string, Tensor>;

// A path (str) is mapped, or read whole where mmap is false; bytes are copied, since tensors may be written into.
io::Bytes bytes_of(nb::handle source, bool mmap = true) {
  if (PyUnicode_Check(source.ptr())) {
    auto path = nb::cast<std::string>(source);
    nb::gil_scoped_release release;
    return mmap ? io::Bytes::map(path) : io::Bytes::read(path);
  }
  Py_buffer view;
  if (PyObject_GetBuffer(source.ptr(), &view, PyBUF_SIMPLE) != 0) throw_python_error();
  auto bytes = io::Bytes::copy(view.buf, uint64_t(view.len), "file object");
  PyBuffer_Release(&view);
  return bytes;
}

// Writes through a Python object's write().
class PythonSink final : public io::Sink {
 public:
  explicit PythonSink(nb::handle file) : write_(file.attr("write")) {}
  void write(const void* data, size_t bytes) override {
    if (bytes == 0) return;
    write_(steal(PyMemoryView_FromMemory(static_cast<char*>(const_cast<void*>(data)), Py_ssize_t(bytes), PyBUF_READ)));
  }

 private:
  nb::object write_;
};

nb::object load_torch(nb::handle source, nb::handle place, bool mmap, bool placeholders) {
  io::Bytes bytes = bytes_of(source, mmap);
  io::Object tree;
  {
    nb::gil_scoped_release release;
    tree = io::load_torch(bytes, {.placeholders = placeholders});
  }
  return to_python(tree, [&](const std::string& location) {
    nb::object where = place(location);
    Device d;
    if (!to_device(where.ptr(), d)) wrong_argument("load", "map_location", "a device", where.ptr());
    return d;
  });
}

void save_torch(nb::handle object, nb::handle f) {
  io::Object tree = from_python(object);
  if (PyUnicode_Check(f.ptr())) {
    auto path = nb::cast<std::string>(f);
    nb::gil_scoped_release release;
    io::save_torch(tree, path);
  } else {
    PythonSink sink(f);
    io::save_torch(tree, sink);
  }
}

void save_safetensors(const TensorMap& tensors, nb::handle f, const io::Metadata& metadata) {
  if (PyUnicode_Check(f.ptr())) {
    auto path = nb::cast<std::string>(f);
    nb::gil_scoped_release release;
    io::save_safetensors(tensors, path, metadata);
  } else {
    PythonSink sink(f);
    io::save_safetensors(tensors, sink, metadata);
  }
}

}  // namespace

void bind_io(nb::module_& m) {
  m.def("_load_torch", &load_torch, nb::arg("source"), nb::arg("place"), nb::arg("mmap"), nb::arg("placeholders"));
  m.def("_save_torch", &save_torch, nb::arg("obj"), nb::arg("f"));
  m.def("_save_safetensors", &save_safetensors, nb::arg("tensors"), nb::arg("f"), nb::arg("metadata"));
  nb::class_<io::SafetensorsFile>(m, "_SafetensorsFile")
      .def("__init__", [](io::SafetensorsFile* self, nb::handle source) { new (self) io::SafetensorsFile(bytes_of(source)); })
      .def("keys",
           [](const io::SafetensorsFile& f) {
             nb::list names;
             for (auto& e : f.entries()) names.append(e.name);
             return names;
           })
      .def("metadata", &io::SafetensorsFile::metadata)
      .def("get", [](const io::SafetensorsFile& f, const std::string& name) { return f.get(name); })
      .def("describe", [](const io::SafetensorsFile& f, const std::string& name) {
        auto& e = f.entry(name);
        return nb::make_tuple(e.dtype, nb::steal(wrap_size(e.shape)), e.begin, e.end);
      });
}

}  // namespace sf::py
