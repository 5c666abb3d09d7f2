#include "python/bindings/io/bind_object.h"

#include <set>
#include <unordered_map>
#include <unordered_set>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/io/formats/pickle.h"
#include "scaffolding/io/upload_ring.h"

namespace sf::py {

namespace {

using io::Object;

nb::object attribute(const char* module, const char* name) { return nb::module_::import_(module).attr(name); }

nb::object text_of(const std::string& s) {
  // Half of a surrogate pair is a legal Python string; bytes that are no UTF-8 at all come as os.fsdecode has them.
  PyObject* o = PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "surrogatepass");
  if (!o) {
    PyErr_Clear();
    o = PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "surrogateescape");
  }
  return steal(o);
}

class Reader {
 public:
  explicit Reader(const std::function<Device(const std::string&)>& place) : place_(place) {}

  void finish() {
    for (auto& ring : rings_) ring->finish();
  }

  nb::object object(const Object& o) {
    switch (o.kind()) {
      case Object::None: return nb::none();
      case Object::Bool: return nb::bool_(o.as_bool());
      case Object::Int: return nb::int_(o.as_int());
      case Object::Float: return nb::float_(o.as_float());
      case Object::Type: return nb::borrow(dtype_object(o.as_dtype()));
      case Object::Complex: return steal(PyComplex_FromDoubles(o.items().at(0).as_float(), o.items().at(1).as_float()));
      default: break;
    }
    auto it = memo_.find(o.node());
    if (it != memo_.end()) return it->second;
    nb::object made = of_node(o);
    memo_[o.node()] = made;
    return made;
  }

 private:
  nb::object of_node(const Object& o) {
    switch (o.kind()) {
      case Object::BigInt: {
        nb::object bytes = steal(PyBytes_FromStringAndSize(o.text().data(), Py_ssize_t(o.text().size())));
        return nb::handle(reinterpret_cast<PyObject*>(&PyLong_Type))
            .attr("from_bytes")(bytes, "little", nb::arg("signed") = true);
      }
      case Object::String: return text_of(o.text());
      case Object::Blob: return steal(PyBytes_FromStringAndSize(o.text().data(), Py_ssize_t(o.text().size())));
      case Object::ByteArray: return steal(PyByteArray_FromStringAndSize(o.text().data(), Py_ssize_t(o.text().size())));
      case Object::List: {
        nb::list list;
        for (auto& i : o.items()) list.append(object(i));
        return list;
      }
      case Object::Tuple: return tuple(o);
      case Object::Size: return nb::handle(reinterpret_cast<PyObject*>(size_type))(tuple(o));
      case Object::Set: {
        nb::object set = steal(PySet_New(nullptr));
        for (auto& i : o.items()) {
          nb::object item = object(i);
          if (PySet_Add(set.ptr(), item.ptr()) != 0) throw_python_error();
        }
        return set;
      }
      case Object::Dict: return filled(nb::dict(), o);
      case Object::OrderedDict: {
        nb::object dict = filled(attribute("collections", "OrderedDict")(), o);
        if (o.node()->state.is_dict()) {
          nb::object attributes = object(o.node()->state);
          if (PyObject_SetAttrString(dict.ptr(), "__dict__", attributes.ptr()) != 0) throw_python_error();
        }
        return dict;
      }
      case Object::Counter: return filled(attribute("collections", "Counter")(), o);
      case Object::TensorValue: {
        nb::object made = tensor(o);
        if (o.node()->state.is_dict()) made.attr("__dict__").attr("update")(object(o.node()->state));
        return made;
      }
      case Object::DeviceName: return steal(device_object(Device(o.text())));
      case Object::Instance:
        if (o.text() == "argparse.Namespace" && o.items().empty() && o.node()->state.is_dict()) {
          nb::object space = attribute("argparse", "Namespace")();
          space.attr("__dict__").attr("update")(object(o.node()->state));
          return space;
        }
        return attribute("scaffolding.io", "Placeholder")(text_of(o.text()), tuple(o), object(o.node()->state));
      default: return attribute("scaffolding.io", "Placeholder")(text_of(o.text()));
    }
  }
  nb::tuple tuple(const Object& o) {
    nb::list list;
    for (auto& i : o.items()) list.append(object(i));
    return nb::tuple(list);
  }
  nb::object filled(nb::object dict, const Object& o) {
    auto& items = o.items();
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      nb::object key = object(items[i]), value = object(items[i + 1]);
      if (PyObject_SetItem(dict.ptr(), key.ptr(), value.ptr()) != 0) throw_python_error();
    }
    return dict;
  }
  nb::object tensor(const Object& o) {
    Tensor t = o.tensor();
    Device device = place_ ? place_(o.text()) : Device();
    bool grad = t.requires_grad();
    if (!device.is_cpu()) {
      Ref<Storage>& moved = moved_[{t.storage().get()}];
      if (!moved) {  // the whole storage, as bytes: tensors that share it go on sharing it
        Tensor whole = Tensor::strided(t.storage(), {int64_t(t.storage()->bytes)}, {1}, 0, kUInt8);
        auto ring = io::UploadRing::of(device);
        if (ring) rings_.insert(ring);
        moved = io::placed(whole, device, ring.get()).storage();
      }
      t = Tensor::strided(moved, t.shape(), t.strides(), t.storage_offset(), t.dtype());
    }
    if (!o.node()->parameter) return steal(wrap(grad && !t.requires_grad() ? t.requires_grad_() : t));
    return attribute("scaffolding.nn", "Parameter")(nb::cast(t), nb::arg("requires_grad") = grad);
  }

  const std::function<Device(const std::string&)>& place_;
  std::unordered_map<const io::Node*, nb::object> memo_;
  std::unordered_map<const Storage*, Ref<Storage>> moved_;
  std::set<std::shared_ptr<io::UploadRing>> rings_;  // of the devices that tensors went to
};

class Writer {
 public:
  Object object(nb::handle h) {
    PyObject* o = h.ptr();
    if (o == Py_None) return {};
    if (PyBool_Check(o)) return Object(o == Py_True);
    if (PyLong_Check(o)) return integer(o);
    if (PyFloat_Check(o)) return Object(PyFloat_AS_DOUBLE(o));
    if (PyComplex_Check(o))
      return Object::container(Object::Complex, {Object(PyComplex_RealAsDouble(o)), Object(PyComplex_ImagAsDouble(o))});
    if (is_numpy_scalar(o)) return object(nb::object(h.attr("item")()));
    for (int i = 0; i < kNumDTypes; ++i)
      if (dtype_object(DType(i)) == o) return Object(DType(i));
    auto it = memo_.find(o);
    if (it != memo_.end()) return it->second;
    if (!open_.insert(o).second) fail("save: ", path_, " contains itself");
    if (open_.size() > size_t(io::kMaxPickleDepth))
      fail("save: ", path_.substr(0, 100), "... is nested more than ", io::kMaxPickleDepth, " deep");
    Object made = of_object(h);
    open_.erase(o);
    memo_.emplace(o, made);
    alive_.push_back(nb::borrow(h));
    return made;
  }

 private:
  static Object integer(PyObject* o) {
    int overflow = 0;
    long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) return Object(int64_t(v));
    nb::handle h(o);
    auto bits = nb::cast<int64_t>(h.attr("bit_length")());
    nb::object bytes = h.attr("to_bytes")(bits / 8 + 1, "little", nb::arg("signed") = true);
    return Object(std::string_view(PyBytes_AS_STRING(bytes.ptr()), size_t(PyBytes_GET_SIZE(bytes.ptr()))),
                  Object::BigInt);
  }
  Object of_object(nb::handle h) {
    PyObject* o = h.ptr();
    if (PyUnicode_Check(o)) {
      Py_ssize_t n;
      const char* s = PyUnicode_AsUTF8AndSize(o, &n);
      if (s) return Object(std::string_view(s, size_t(n)));
      PyErr_Clear();
      fail("save: ", path_, " is a string that has no UTF-8 encoding");
    }
    if (PyBytes_Check(o))
      return Object(std::string_view(PyBytes_AS_STRING(o), size_t(PyBytes_GET_SIZE(o))), Object::Blob);
    if (PyByteArray_Check(o))
      return Object(std::string_view(PyByteArray_AS_STRING(o), size_t(PyByteArray_GET_SIZE(o))), Object::ByteArray);
    if (is_tensor(o)) {
      const Tensor& t = tensor_of(o);
      SF_CHECK_AS(RuntimeError, !t.device().is_meta(), "save: ", path_, " is on the meta device and has no bytes");
      bool parameter = parameter_type && PyType_IsSubtype(Py_TYPE(o), parameter_type);
      Tensor kept = t.is_leaf() ? t : t.detach();
      return Object(kept, parameter, t.device().str());
    }
    if (Py_TYPE(o) == size_type) return sequence(h, Object::Size);
    if (PyTuple_CheckExact(o)) return sequence(h, Object::Tuple);
    if (PyList_CheckExact(o)) return sequence(h, Object::List);
    if (PyDict_CheckExact(o)) return dict(h, Object::Dict);
    if (PySet_Check(o)) return set(h);
    nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    if (type.is(attribute("collections", "OrderedDict"))) {
      Object made = dict(h, Object::OrderedDict);
      nb::object attributes = h.attr("__dict__");
      if (nb::len(attributes) > 0) {
        std::string before = path_;
        path_ += ".__dict__";
        made.node()->state = object(attributes);
        path_ = before;
      }
      return made;
    }
    if (type.is(attribute("collections", "Counter"))) return dict(h, Object::Counter);
    Device device;
    if (!PyUnicode_Check(o) && to_device(o, device)) return Object(device.str(), Object::DeviceName);
    fail<TypeError>("save: ", path_, " is of type ", nb::cast<std::string>(type.attr("__module__")), ".",
                    nb::cast<std::string>(type.attr("__qualname__")),
                    ", which cannot be saved; tensors, numbers, strings, bytes, lists, tuples, sets and dicts of them "
                    "can (a module or optimizer: its state_dict())");
  }
  Object sequence(nb::handle h, Object::Kind kind) {
    Object made = Object::container(kind);
    Py_ssize_t i = 0;
    std::string before = path_;
    for (nb::handle item : h) {
      path_ = before + "[" + std::to_string(i++) + "]";
      made.items().push_back(object(item));
    }
    path_ = before;
    return made;
  }
  Object dict(nb::handle h, Object::Kind kind) {
    Object made = Object::container(kind);
    std::string before = path_;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(h.ptr(), &at, &key, &value)) {
      nb::object k = nb::borrow(key), v = nb::borrow(value);
      path_ = before + "[" + nb::cast<std::string>(nb::str(steal(PyObject_Repr(key)))) + "]";
      made.items().push_back(object(k));
      made.items().push_back(object(v));
    }
    path_ = before;
    return made;
  }
  Object set(nb::handle h) {  // in an order that does not depend on addresses, so that equal sets give equal files
    Object made = Object::container(Object::Set);
    for (nb::handle item : attribute("builtins", "sorted")(h, nb::arg("key") = attribute("builtins", "repr")))
      made.items().push_back(object(item));
    return made;
  }

  std::string path_ = "obj";
  std::unordered_map<PyObject*, Object> memo_;
  std::unordered_set<PyObject*> open_;
  std::vector<nb::object> alive_;  // an address stands for one object as long as it lives
};

}  // namespace

nb::object to_python(const io::Object& tree, const std::function<Device(const std::string&)>& place) {
  Reader reader(place);
  nb::object object = reader.object(tree);
  reader.finish();
  return object;
}

io::Object from_python(nb::handle object) { return Writer().object(object); }

}  // namespace sf::py
