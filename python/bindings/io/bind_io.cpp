// Checkpoint files: what scaffolding.serialization, scaffolding.safetensors and scaffolding.io are made of.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/io/bind_object.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/gguf.h"
#include "scaffolding/io/formats/npy.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/sharded.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/replacing_folder.h"
#include "scaffolding/io/upload_ring.h"

namespace sf::py {

namespace {

using TensorMap = std::map<std::string, Tensor>;

// FileNotFoundError where there is no file, as Python's own functions have it.
std::string existing(nb::handle path) {
  auto text = nb::cast<std::string>(path);
  std::error_code error;
  if (!std::filesystem::exists(text, error) && !error) {
    errno = ENOENT;
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
    throw_python_error();
  }
  return text;
}

// A path (str) is mapped, or read whole where mmap is false; bytes are copied, since tensors may be written into.
io::Bytes bytes_of(nb::handle source, bool mmap = true) {
  if (PyUnicode_Check(source.ptr())) {
    auto path = existing(source);
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

// f: a path, which is replaced as a whole, or an object with write().
template <class F> void save_to(nb::handle f, const F& save) {
  if (!PyUnicode_Check(f.ptr())) {
    PythonSink sink(f);
    return save(sink);
  }
  auto path = nb::cast<std::string>(f);
  nb::gil_scoped_release release;
  io::ReplacingFile file(path);
  save(file);
  file.commit();
}

void save_torch(nb::handle object, nb::handle f) {
  io::Object tree = from_python(object);
  save_to(f, [&](io::Sink& sink) { io::save_torch(tree, sink); });
}
void save_safetensors(const TensorMap& tensors, nb::handle f, const io::Metadata& metadata) {
  save_to(f, [&](io::Sink& sink) { io::save_safetensors(tensors, sink, metadata); });
}
void save_npy(const Tensor& array, nb::handle f) {
  save_to(f, [&](io::Sink& sink) { io::save_npy(array, sink); });
}
void save_npz(const TensorMap& arrays, nb::handle f) {
  save_to(f, [&](io::Sink& sink) { io::save_npz(arrays, sink); });
}
std::string save_sharded(const TensorMap& tensors, const std::string& path, uint64_t max_shard_size,
                         const io::Metadata& metadata) {
  nb::gil_scoped_release release;
  return io::save_sharded_safetensors(tensors, path, max_shard_size, metadata);
}

void save_bytes(nb::bytes content, nb::handle f) {
  save_to(f, [&](io::Sink& sink) { sink.write(content.c_str(), content.size()); });
}

// `with _ReplacingFolder(folder, index):` what its block writes below the folder on this thread replaces what is there
// as a whole, or not at all where the block raises.
struct FolderBlock {
  std::string folder, index;
  std::unique_ptr<io::ReplacingFolder> files;

  void enter() { files = std::make_unique<io::ReplacingFolder>(folder, index); }
  void exit(nb::handle error, nb::handle, nb::handle) {
    auto held = std::move(files);
    if (held && error.is_none()) held->commit();
  }
};

TensorMap load_npz(nb::handle source) {
  io::NpzFile file(bytes_of(source));
  TensorMap out;
  for (auto& name : file.names()) out[name] = file.get(name);
  return out;
}

}  // namespace

void bind_io(nb::module_& m) {
  m.def("_load_torch", &load_torch, nb::arg("source"), nb::arg("place"), nb::arg("mmap"), nb::arg("placeholders"));
  m.def("_save_torch", &save_torch, nb::arg("obj").none(), nb::arg("f"));
  m.def("_save_safetensors", &save_safetensors, nb::arg("tensors"), nb::arg("f"), nb::arg("metadata"));
  m.def("_save_sharded", &save_sharded, nb::arg("tensors"), nb::arg("path"), nb::arg("max_shard_size"),
        nb::arg("metadata"));
  m.def("_save_bytes", &save_bytes, nb::arg("content"), nb::arg("f"));
  nb::class_<FolderBlock>(m, "_ReplacingFolder")
      .def("__init__",
           [](FolderBlock* self, std::string folder, std::string index) {
             new (self) FolderBlock{std::move(folder), std::move(index), nullptr};
           })
      .def("__enter__", &FolderBlock::enter)
      .def("__exit__", &FolderBlock::exit, nb::arg("type").none(), nb::arg("value").none(),
           nb::arg("traceback").none());
  m.def("_load_npy", [](nb::handle source) { return io::load_npy(bytes_of(source)); });
  m.def("_save_npy", &save_npy, nb::arg("array"), nb::arg("f"));
  m.def("_load_npz", &load_npz);
  m.def("_save_npz", &save_npz);
  nb::class_<io::Checkpoint>(m, "_Checkpoint")
      .def_prop_ro("kind", &io::Checkpoint::kind)
      .def("keys", &io::Checkpoint::names)
      .def("metadata", &io::Checkpoint::metadata)
      .def("get", &io::Checkpoint::get)
      .def("contains", &io::Checkpoint::contains)
      .def("describe", [](const io::Checkpoint& c, const std::string& name) {
        io::CheckpointEntry e = c.entry(name);
        return nb::make_tuple(e.dtype, nb::steal(wrap_size(e.shape)));
      });
  m.def("_open_checkpoint",
        [](nb::handle path) { return std::const_pointer_cast<io::Checkpoint>(io::open_checkpoint(existing(path))); });
  nb::class_<io::GgufFile>(m, "_GgufFile")
      .def("__init__", [](io::GgufFile* self, nb::handle source) { new (self) io::GgufFile(bytes_of(source)); })
      .def_prop_ro("version", &io::GgufFile::version)
      .def("keys",
           [](const io::GgufFile& f) {
             nb::list names;
             for (auto& e : f.entries()) names.append(e.name);
             return names;
           })
      .def("metadata", [](const io::GgufFile& f) { return to_python(f.metadata()); })
      .def("get",
           [](const io::GgufFile& f, const std::string& name, nb::handle dtype) {
             DType t;
             if (!to_dtype(dtype.ptr(), t)) wrong_argument("gguf", "dtype", "a dtype", dtype.ptr());
             return f.get(name, t);
           })
      .def("describe", [](const io::GgufFile& f, const std::string& name) {
        auto& e = f.entry(name);
        return nb::make_tuple(std::string(e.format->name), nb::steal(wrap_size(e.shape)));
      });
  nb::class_<io::UploadRing>(m, "_UploadRing")
      .def("upload",
           [](io::UploadRing& ring, const Tensor& t) {
             nb::gil_scoped_release release;
             return ring.upload(t);
           })
      .def("finish", &io::UploadRing::finish, nb::call_guard<nb::gil_scoped_release>());
  m.def("_upload_ring", [](nb::handle device) {
    Device d;
    if (!to_device(device.ptr(), d)) wrong_argument("load", "device", "a device", device.ptr());
    return io::UploadRing::of(d);
  });
  nb::class_<io::SafetensorsFile>(m, "_SafetensorsFile")
      .def("__init__",
           [](io::SafetensorsFile* self, nb::handle source) {
             if (PyUnicode_Check(source.ptr())) new (self) io::SafetensorsFile(existing(source));
             else new (self) io::SafetensorsFile(bytes_of(source));
           })
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
