// dtype, device and memory_format objects, and the questions one asks of dtypes.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::py {

namespace {

struct PyDType {
  PyObject_HEAD DType t;
};
PyTypeObject* dtype_type = nullptr;
PyObject* g_dtypes[kNumDTypes];
nb::handle g_device_type;

DType dtype_of_object(PyObject* o) { return reinterpret_cast<PyDType*>(o)->t; }

PyObject* dtype_repr(PyObject* o) { return PyUnicode_FromFormat("scaffolding.%s", name(dtype_of_object(o)).data()); }
// a global of the module
PyObject* dtype_reduce(PyObject* o, PyObject*) { return PyUnicode_FromString(name(dtype_of_object(o)).data()); }
PyObject* dtype_itemsize(PyObject* o, void*) { return PyLong_FromSize_t(size_of(dtype_of_object(o))); }
PyObject* dtype_is_floating(PyObject* o, void*) { return PyBool_FromLong(is_floating(dtype_of_object(o))); }
PyObject* dtype_is_signed(PyObject* o, void*) {
  return PyBool_FromLong(dtype_of_object(o) != kUInt8 && dtype_of_object(o) != kBool);
}
PyObject* dtype_is_complex(PyObject*, void*) { Py_RETURN_FALSE; }
PyObject* dtype_name(PyObject* o, void*) { return PyUnicode_FromString(name(dtype_of_object(o)).data()); }
PyObject* dtype_module(PyObject*, void*) { return PyUnicode_FromString("scaffolding"); }

PyTypeObject* make_dtype_type() {
  static PyGetSetDef getset[] = {{"itemsize", dtype_itemsize, nullptr, "Bytes per element.", nullptr},
                                 {"is_floating_point", dtype_is_floating, nullptr, nullptr, nullptr},
                                 {"is_signed", dtype_is_signed, nullptr, nullptr, nullptr},
                                 {"is_complex", dtype_is_complex, nullptr, nullptr, nullptr},
                                 {"name", dtype_name, nullptr, nullptr, nullptr},
                                 {"__module__", dtype_module, nullptr, nullptr, nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyMethodDef methods[] = {{"__reduce__", dtype_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
  PyType_Slot slots[] = {{Py_tp_repr, reinterpret_cast<void*>(dtype_repr)},
                         {Py_tp_getset, getset},
                         {Py_tp_methods, methods},
                         {Py_tp_doc, const_cast<char*>("The type of a tensor's elements.")},
                         {0, nullptr}};
  PyType_Spec spec{"scaffolding.dtype", sizeof(PyDType), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                   slots};
  return make_type(spec);
}

struct PyMemoryFormat {
  MemoryFormat format;
  const char* name;
};

DType require_dtype(const char* op, const char* name, nb::handle o) {
  DType t;
  if (!to_dtype(o.ptr(), t)) wrong_argument(op, name, "a dtype", o.ptr());
  return t;
}

nb::object finfo(nb::handle type) {
  DType t = type.is_none() ? default_dtype() : require_dtype("finfo", "type", type);
  SF_CHECK_AS(TypeError, is_floating(t), "finfo: needs a floating-point dtype, got ", t);
  // digits: bits of the significand including the hidden one; min_exponent: of the smallest normal number.
  struct Row {
    DType t;
    int digits, min_exponent;
    double max;
  };
  static constexpr Row rows[] = {{kFloat16, 11, -14, 65504},
                                 {kBFloat16, 8, -126, 0x1.fep127},
                                 {kFloat32, 24, -126, 0x1.fffffep127},
                                 {kFloat64, 53, -1022, 0x1.fffffffffffffp1023},
                                 {kFloat8E4M3, 4, -6, 448},
                                 {kFloat8E5M2, 3, -14, 57344}};
  const Row& r = *std::find_if(std::begin(rows), std::end(rows), [&](const Row& row) { return row.t == t; });
  nb::object info = nb::module_::import_("types").attr("SimpleNamespace")();
  double eps = std::ldexp(1, 1 - r.digits), tiny = std::ldexp(1, r.min_exponent);
  info.attr("bits") = int(size_of(t)) * 8;
  info.attr("eps") = eps;
  info.attr("max") = r.max;
  info.attr("min") = -r.max;
  info.attr("tiny") = tiny;
  info.attr("smallest_normal") = tiny;
  info.attr("resolution") = std::pow(10, -std::floor((r.digits - 1) * std::log10(2)));
  info.attr("dtype") = nb::str(name(t).data());
  return info;
}

nb::object iinfo(nb::handle type) {
  DType t = require_dtype("iinfo", "type", type);
  SF_CHECK_AS(TypeError, is_integral(t), "iinfo: needs an integer dtype, got ", t);
  nb::object info = nb::module_::import_("types").attr("SimpleNamespace")();
  int bits = int(size_of(t)) * 8;
  int64_t max = t == kUInt8 ? 255 : int64_t(~uint64_t(0) >> (65 - bits));
  info.attr("bits") = bits;
  info.attr("max") = max;
  info.attr("min") = t == kUInt8 ? 0 : -max - 1;
  info.attr("dtype") = nb::str(name(t).data());
  return info;
}

nb::object as_dtype(DType t) { return nb::borrow(dtype_object(t)); }

thread_local std::unique_ptr<DefaultDevice> t_set_device;                    // by set_default_device
thread_local std::vector<std::unique_ptr<DefaultDevice>> t_default_devices;  // of the `with` blocks that are open

void bind_devices(nb::module_& m) {
  auto device = nb::class_<Device>(
      m, "device", "Where a tensor is, by its type and number: \"cpu\", \"cuda\", \"cuda:1\" or \"meta\".");
  device
      .def(
          "__init__", [](Device* self, const std::string& type) { new (self) Device(type); }, nb::arg("type"))
      .def(
          "__init__",
          [](Device* self, const std::string& type, int index) {
            new (self) Device(index > 0 || type == "cuda" ? type + ":" + std::to_string(index) : type);
          },
          nb::arg("type"), nb::arg("index"))
      .def(
          "__init__", [](Device* self, const Device& other) { new (self) Device(other); }, nb::arg("device"))
      .def_prop_ro("type",
                   [](const Device& d) { return Device(d.type).str().substr(0, Device(d.type).str().find(':')); })
      .def_prop_ro(
          "index",
          [](const Device& d) { return d.is_cuda() ? nb::object(nb::int_(int(d.index))) : nb::object(nb::none()); })
      .def("__str__", &Device::str)
      .def("__repr__",
           [](const Device& d) {
             std::string s = d.str();
             auto colon = s.find(':');
             return "device(type='" + s.substr(0, colon) + "'" +
                    (colon == s.npos ? "" : ", index=" + s.substr(colon + 1)) + ")";
           })
      .def("__hash__", [](const Device& d) { return int(d.type) * 128 + d.index; })
      .def("__eq__",
           [](const Device& d, nb::handle o) -> nb::object {
             if (!nb::isinstance<Device>(o)) return nb::borrow(Py_NotImplemented);
             return nb::bool_(d == *nb::inst_ptr<Device>(o));
           })
      .def("__reduce__", [](const Device& d) { return nb::make_tuple(g_device_type, nb::make_tuple(d.str())); })
      .def(
          "__enter__",
          [](const Device& d) {
            t_default_devices.push_back(std::make_unique<DefaultDevice>(d));
            return d;
          },
          "Tensors that this thread makes without a device are made here until the block ends.")
      .def(
          "__exit__", [](const Device&, nb::handle, nb::handle, nb::handle) { t_default_devices.pop_back(); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
  device.attr("__module__") = "scaffolding";
  g_device_type = device;
  m.def("get_default_device", &default_device,
        "Where this thread makes tensors without a device."
        "\n\n>>> sf.get_default_device()\n"
        "device(type='cpu')");
  m.def(
      "set_default_device",
      [](nb::handle o) {
        Device d;
        if (!o.is_none() && !to_device(o.ptr(), d)) wrong_argument("set_default_device", "device", "a device", o.ptr());
        SF_CHECK_AS(RuntimeError, t_default_devices.empty(),
                    "set_default_device: a `with device` block is open, which decides until it ends");
        t_set_device.reset();  // first: each restores what was before it
        t_set_device = std::make_unique<DefaultDevice>(d);
      },
      nb::arg("device").none(),
      "Where this thread makes tensors without a device from now on; None: on the CPU. A `with device` block within "
      "counts first."
      "\n\n>>> sf.set_default_device(\"cpu\")\n"
      ">>> sf.get_default_device()\n"
      "device(type='cpu')");
}

void bind_memory_formats(nb::module_& m) {
  auto format = nb::class_<PyMemoryFormat>(m, "memory_format", "An order of dimensions in memory: channels_last, ...");
  format.def("__repr__", [](const PyMemoryFormat& f) { return std::string("scaffolding.") + f.name; })
      .def("__reduce__", [](const PyMemoryFormat& f) { return nb::str(f.name); });
  format.attr("__module__") = "scaffolding";
  static constexpr PyMemoryFormat all[] = {{MemoryFormat::Preserve, "preserve_format"},
                                           {MemoryFormat::Contiguous, "contiguous_format"},
                                           {MemoryFormat::ChannelsLast, "channels_last"},
                                           {MemoryFormat::ChannelsLast, "channels_last_3d"}};
  for (auto& f : all) m.attr(f.name) = nb::cast(f);
}

}  // namespace

bool to_dtype(PyObject* o, DType& out) {
  if (Py_TYPE(o) == dtype_type) return out = dtype_of_object(o), true;
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return out = kFloat64, true;
  if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return out = kInt64, true;
  if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return out = kBool, true;
  return false;
}

bool to_device(PyObject* o, Device& out) {
  if (PyUnicode_Check(o)) return out = Device(std::string_view(PyUnicode_AsUTF8(o))), true;
  if (!nb::isinstance<Device>(o)) return false;
  return out = *nb::inst_ptr<Device>(o), true;
}

bool to_memory_format(PyObject* o, MemoryFormat& out) {
  if (!nb::isinstance<PyMemoryFormat>(o)) return false;
  return out = nb::inst_ptr<PyMemoryFormat>(o)->format, true;
}

PyObject* dtype_object(DType t) { return g_dtypes[int(t)]; }
PyObject* device_object(Device d) { return nb::cast(d).release().ptr(); }

void bind_dtype(nb::module_& m) {
  dtype_type = make_dtype_type();
  m.attr("dtype") = nb::handle(reinterpret_cast<PyObject*>(dtype_type));
  for (int i = 0; i < kNumDTypes; ++i) {
    g_dtypes[i] = checked(make_object(dtype_type));
    reinterpret_cast<PyDType*>(g_dtypes[i])->t = DType(i);
    m.attr(name(DType(i)).data()) = nb::handle(g_dtypes[i]);
  }
  static constexpr std::pair<const char*, DType> aliases[] = {{"half", kFloat16},   {"float", kFloat32},
                                                              {"double", kFloat64}, {"short", kInt16},
                                                              {"int", kInt32},      {"long", kInt64}};
  for (auto& [alias, t] : aliases) m.attr(alias) = nb::handle(g_dtypes[int(t)]);
  bind_devices(m);
  bind_memory_formats(m);

  m.def("finfo", &finfo, nb::arg("type") = nb::none(),
        "Limits of a floating-point dtype, type (None: the default one): bits, eps, max, min, tiny."
        "\n\n>>> sf.finfo(sf.float16).max\n"
        "65504.0");
  m.def("iinfo", &iinfo, nb::arg("type"),
        "Limits of an integer dtype, type: bits, max, min."
        "\n\n>>> sf.iinfo(sf.int8).min\n"
        "-128");
  m.def(
      "promote_types",
      [](nb::handle a, nb::handle b) {
        return as_dtype(
            promote(require_dtype("promote_types", "type1", a), require_dtype("promote_types", "type2", b)));
      },
      nb::arg("type1"), nb::arg("type2"),
      "The smallest dtype that holds both, type1 and type2."
      "\n\n>>> sf.promote_types(sf.int64, sf.float16)\n"
      "scaffolding.float16");
  m.def(
      "can_cast",
      [](nb::handle from, nb::handle to) {
        auto kind = [](DType t) { return t == kBool ? 0 : is_floating(t) ? 2 : 1; };
        return kind(require_dtype("can_cast", "from_", from)) <= kind(require_dtype("can_cast", "to", to));
      },
      nb::arg("from_"), nb::arg("to"),
      "Whether a result of dtype from_ may be written into one of dtype to."
      "\n\n>>> sf.can_cast(sf.float32, sf.int64), sf.can_cast(sf.int64, sf.float32)\n"
      "(False, True)");
  m.def(
      "result_type",
      [](nb::handle a, nb::handle b) {
        auto as_tensor = [](nb::handle o) {
          if (is_tensor(o.ptr())) return tensor_of(o.ptr());
          Scalar s;
          if (!to_scalar(o.ptr(), s)) wrong_argument("result_type", "an operand", "a tensor or a number", o.ptr());
          return wrapped(s);
        };
        return as_dtype(sf::result_type(as_tensor(a), as_tensor(b)));
      },
      nb::arg("tensor1"), nb::arg("tensor2"),
      "The dtype in which two operands, tensor1 and tensor2 (or numbers), compute."
      "\n\n>>> sf.result_type(sf.zeros(2, dtype=sf.float16), 1.5)\n"
      "scaffolding.float16");
  m.def(
      "get_default_dtype", [] { return as_dtype(default_dtype()); },
      "The dtype of floats that are made without one."
      "\n\n>>> sf.get_default_dtype()\n"
      "scaffolding.float32");
  m.def(
      "set_default_dtype", [](nb::handle d) { set_default_dtype(require_dtype("set_default_dtype", "d", d)); },
      nb::arg("d"),
      "d is the dtype of floats that are made without one, from now on."
      "\n\n>>> sf.set_default_dtype(sf.float64)\n"
      ">>> sf.zeros(1).dtype\n"
      "scaffolding.float64\n"
      ">>> sf.set_default_dtype(sf.float32)");
}

}  // namespace sf::py
