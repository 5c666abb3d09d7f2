// Methods of Tensor that are no ops: questions about its layout, moving and converting, values as Python objects.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/print.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/copy/pinned.h"

namespace sf::py {

PyObject* tensor_repr(PyObject* self) {
  return guarded([&] {
    std::string type = type_name(self);
    bool plain = Py_TYPE(self) == tensor_type || Py_TYPE(self) == parameter_type;
    std::string name = plain ? "tensor" : type.substr(type.rfind('.') + 1);
    std::string text = to_string(tensor_of(self), name + "(", "scaffolding.");
    if (Py_TYPE(self) == parameter_type) text = "Parameter containing:\n" + text;
    return PyUnicode_FromStringAndSize(text.data(), Py_ssize_t(text.size()));
  });
}

namespace {

Tensor in_layout(const Tensor& t, MemoryFormat format) {
  return format == MemoryFormat::Preserve ? t : t.contiguous(format);
}

MemoryFormat require_format(const char* op, nb::handle o, MemoryFormat fallback) {
  MemoryFormat f = fallback;
  if (!o.is_none() && !to_memory_format(o.ptr(), f)) wrong_argument(op, "memory_format", "a memory format", o.ptr());
  return f;
}

// ---- to(): torch's three forms. Reads (dtype), (device, dtype) or (other), then the keywords.
struct Target {
  std::optional<DType> dtype;
  std::optional<Device> device;
  bool copy = false, non_blocking = false;
  MemoryFormat format = MemoryFormat::Preserve;
};

void read_target(nb::handle o, const char* name, Target& to) {
  DType t;
  Device d;
  if (o.is_none()) return;
  if (is_tensor(o.ptr())) {
    to.dtype = tensor_of(o.ptr()).dtype();
    to.device = tensor_of(o.ptr()).device();
  } else if (to_dtype(o.ptr(), t)) {
    to.dtype = t;
  } else if (to_device(o.ptr(), d)) {
    to.device = d;
  } else {
    wrong_argument("to", name, "a dtype, a device or a tensor", o.ptr());
  }
}

PyObject* to(const Tensor& x, const Target& target) {
  Tensor y;
  {
    MaybeRelease release(x.numel() > kReleaseAbove);
    y = x;
    if (target.device) y = to_device(y, *target.device, target.non_blocking);
    if (target.dtype) y = to_dtype(y, *target.dtype);
    y = in_layout(y, target.format);
    if (target.copy && y.is_same(x)) y = clone(y);
  }
  return wrap(std::move(y));
}

nb::object to_method(const Tensor& self, nb::args args, nb::kwargs kwargs) {
  Target target;
  size_t i = 0, flags = 0;
  for (nb::handle a : args) {
    if (PyBool_Check(a.ptr())) (flags++ ? target.copy : target.non_blocking) = a.ptr() == Py_True;
    else if (i < 2) read_target(a, i ? "dtype" : "device", target);
    ++i;
  }
  for (auto [key, value] : kwargs) {
    std::string name = nb::cast<std::string>(key);
    if (name == "dtype" || name == "device" || name == "other") {
      read_target(value, name.c_str(), target);
    } else if (name == "copy") {
      target.copy = PyObject_IsTrue(value.ptr()) == 1;
    } else if (name == "memory_format") {
      target.format = require_format("to", value, MemoryFormat::Preserve);
    } else {
      SF_CHECK_AS(TypeError, name == "non_blocking", "to: has no argument '", name, "'");
      target.non_blocking = PyObject_IsTrue(value.ptr()) == 1;
    }
  }
  return steal(to(self, target));
}

template <DType T> nb::object cast_to(const Tensor& self, nb::handle format) {
  Target target;
  target.dtype = T;
  target.format = require_format("to", format, MemoryFormat::Preserve);
  return steal(to(self, target));
}

constexpr const char* kCast = "The tensor in the dtype of that name, laid out in memory_format; None: as it is.";

void bind_conversions() {
  tensor_method("to", to_method, "Another dtype, device or memory format: to(dtype), to(device, dtype), to(other).");
  auto cast = [](const char* name, auto f) { tensor_method(name, f, nb::arg("memory_format") = nb::none(), kCast); };
  cast("float", &cast_to<kFloat32>);
  cast("double", &cast_to<kFloat64>);
  cast("half", &cast_to<kFloat16>);
  cast("bfloat16", &cast_to<kBFloat16>);
  cast("long", &cast_to<kInt64>);
  cast("int", &cast_to<kInt32>);
  cast("short", &cast_to<kInt16>);
  cast("char", &cast_to<kInt8>);
  cast("byte", &cast_to<kUInt8>);
  cast("bool", &cast_to<kBool>);
  tensor_method(
      "cpu", [](const Tensor& t) { return t.to(Device::CPU); }, "The tensor in host memory.");
  tensor_method(
      "cuda",
      [](const Tensor& t, nb::handle device, bool non_blocking) {
        Device d(Device::CUDA);
        int64_t index;
        if (!device.is_none()) {
          if (to_int(device.ptr(), index)) d = Device(Device::CUDA, int(index));
          else if (!to_device(device.ptr(), d) || !d.is_cuda())
            wrong_argument("cuda", "device", "a cuda device or its index", device.ptr());
        }
        return to_device(t, d, non_blocking);
      },
      nb::arg("device") = nb::none(), nb::arg("non_blocking") = false,
      "The tensor on a CUDA device. non_blocking: copies out of pinned memory are queued and not waited for.");
  tensor_method(
      "pin_memory", [](const Tensor& t, nb::handle) { return pin_memory(t); }, nb::arg("device") = nb::none(),
      "The tensor in pinned host memory, from which a GPU copies while the program goes on: itself where it is there "
      "already. RuntimeError without a GPU. device changes nothing.");
  tensor_method(
      "is_pinned", [](const Tensor& t, nb::handle) { return is_pinned(t); }, nb::arg("device") = nb::none(),
      "Whether the memory is pinned. device changes nothing.");
  tensor_method(
      "mps", [](const Tensor& t) { return t.to(Device::MPS); }, "The tensor on the Accelerate device of a Mac.");
  tensor_method(
      "contiguous",
      [](const Tensor& t, nb::handle format) {
        return t.contiguous(require_format("contiguous", format, MemoryFormat::Contiguous));
      },
      nb::arg("memory_format") = nb::none(),
      "The tensor in row-major memory, or as memory_format says: itself, or a copy.");
  tensor_method(
      "clone",
      [](const Tensor& t, nb::handle format) {
        MemoryFormat f = require_format("clone", format, MemoryFormat::Preserve);
        Tensor y = clone(t);
        return in_layout(y, f);
      },
      nb::arg("memory_format") = nb::none(),
      "A copy with memory of its own, laid out in memory_format; None: as it is.");
}

void bind_layout() {
  tensor_method(
      "size",
      [](const Tensor& t, std::optional<int64_t> dim) {
        return dim ? nb::object(nb::int_(t.size(*dim))) : steal(wrap_size(t.shape()));
      },
      nb::arg("dim") = nb::none(), "The sizes of all dimensions, or of one, dim.");
  tensor_method(
      "stride",
      [](const Tensor& t, std::optional<int64_t> dim) -> nb::object {
        if (dim) return nb::int_(t.stride(*dim));
        return steal(PySequence_Tuple(steal(wrap_size(t.strides())).ptr()));
      },
      nb::arg("dim") = nb::none(), "The steps in memory of all dimensions, or of one, dim, in elements.");
  for (const char* name : {"dim", "ndimension"})
    tensor_method(
        name, [](const Tensor& t) { return t.ndim(); }, "The number of dimensions.");
  for (const char* name : {"numel", "nelement"})
    tensor_method(
        name, [](const Tensor& t) { return t.numel(); }, "The number of elements.");
  tensor_method(
      "storage_offset", [](const Tensor& t) { return t.storage_offset(); },
      "Elements before the first one in the shared memory.");
  tensor_method(
      "data_ptr", [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()); },
      "The address of the first element.");
  tensor_method(
      "element_size", [](const Tensor& t) { return t.itemsize(); }, "Bytes per element.");
  tensor_method("get_device", [](const Tensor& t) { return t.device().is_cuda() ? int(t.device().index) : -1; });
  tensor_method(
      "is_contiguous",
      [](const Tensor& t, nb::handle format) {
        return t.is_contiguous(require_format("is_contiguous", format, MemoryFormat::Contiguous));
      },
      nb::arg("memory_format") = nb::none(),
      "Whether the elements lie in row-major order, or in that of memory_format.");
  tensor_method("is_floating_point", [](const Tensor& t) { return is_floating(t.dtype()); });
  tensor_method("is_complex", [](const Tensor&) { return false; });
  tensor_method("is_signed", [](const Tensor& t) { return t.dtype() != kUInt8 && t.dtype() != kBool; });
  tensor_method("is_inference", [](const Tensor& t) { return t.impl()->inference; });
  tensor_method(
      "is_set_to",
      [](const Tensor& t, const Tensor& other) {
        return t.data_ptr() == other.data_ptr() && t.shape() == other.shape() && t.strides() == other.strides();
      },
      nb::arg("tensor"), "Whether it and tensor show the same memory in the same way.");
  tensor_method("_storage_nbytes", [](const Tensor& t) { return t.storage()->bytes; });
  tensor_method("_storage_address", [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.storage().get()); });
}

void bind_values() {
  tensor_method(
      "item",
      [](const Tensor& t) {
        SF_CHECK(t.numel() == 1, "item: needs a tensor with one element, got shape ", t.shape());
        return scalar_object(t);
      },
      "The one element as a Python number.");
  tensor_method(
      "fill_",
      [](nb::handle self, nb::handle value) {
        Scalar s;
        if (!to_scalar(value.ptr(), s)) wrong_argument("fill_", "value", "a number", value.ptr());
        Tensor t = tensor_of(self.ptr());
        t.fill_(s);
        return nb::borrow(self);
      },
      nb::arg("value"), "Sets every element to value.");
  tensor_method(
      "zero_",
      [](nb::handle self) {
        Tensor t = tensor_of(self.ptr());
        t.zero_();
        return nb::borrow(self);
      },
      "Sets every element to 0.");
  tensor_method(
      "copy_",
      [](nb::handle self, const Tensor& src, bool non_blocking) {
        Tensor t = tensor_of(self.ptr());
        {
          MaybeRelease release(t.numel() > kReleaseAbove);
          copy_into(t, src, non_blocking);
        }
        return nb::borrow(self);
      },
      nb::arg("src"), nb::arg("non_blocking") = false,
      "Overwrites the elements with those of src, broadcast and converted. non_blocking: copies between pinned memory "
      "and "
      "a GPU are queued and not waited for.");
  tensor_method("__format__", [](nb::handle self, nb::handle spec) {
    const Tensor& t = tensor_of(self.ptr());
    if (t.ndim() == 0 && PyUnicode_GetLength(spec.ptr()) > 0)
      return steal(PyObject_Format(scalar_object(t).ptr(), spec.ptr()));
    return steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__format__", "OO", self.ptr(),
                                     spec.ptr()));
  });
}

void bind_print_options(nb::module_& m) {
  m.def(
      "_set_printoptions",
      [](std::optional<int> precision, std::optional<double> threshold, std::optional<int64_t> edgeitems,
         std::optional<int> linewidth, std::optional<bool> sci_mode) {
        PrintOptions& o = print_options();
        o.precision = std::clamp(precision.value_or(o.precision), 0, 30);
        if (threshold) o.threshold = *threshold >= 9e18 ? INT64_MAX : int64_t(*threshold);
        o.edgeitems = std::max<int64_t>(edgeitems.value_or(o.edgeitems), 0);
        o.linewidth = linewidth.value_or(o.linewidth);
        o.sci_mode = sci_mode;
      },
      nb::arg("precision").none(), nb::arg("threshold").none(), nb::arg("edgeitems").none(),
      nb::arg("linewidth").none(), nb::arg("sci_mode").none());
  m.def("_get_printoptions", [] {
    const PrintOptions& o = print_options();
    return nb::make_tuple(o.precision, o.threshold, o.edgeitems, o.linewidth, o.sci_mode);
  });
}

}  // namespace

void bind_methods(nb::module_& m) {
  bind_conversions();
  bind_layout();
  bind_values();
  bind_print_options(m);
  m.def(
      "is_tensor", [](nb::handle o) { return is_tensor(o.ptr()); }, nb::arg("obj"),
      "Whether obj is a Tensor."
      "\n\n>>> sf.is_tensor(sf.zeros(1)), sf.is_tensor([0])\n"
      "(True, False)");
  m.def(
      "is_floating_point", [](const Tensor& t) { return is_floating(t.dtype()); }, nb::arg("input"),
      "Whether the dtype of input is one of floats."
      "\n\n>>> sf.is_floating_point(sf.tensor([1.0])), sf.is_floating_point(sf.tensor([1]))\n"
      "(True, False)");
  m.def(
      "numel", [](const Tensor& t) { return t.numel(); }, nb::arg("input"), "The number of elements.");
  m.def("set_num_threads", &set_num_threads, nb::arg("num"),
        "How many threads an op may use: num."
        "\n\n>>> threads = sf.get_num_threads()\n"
        ">>> sf.set_num_threads(1)\n"
        ">>> sf.get_num_threads()\n"
        "1\n"
        ">>> sf.set_num_threads(threads)");
  m.def("get_num_threads", &num_threads,
        "How many threads an op may use."
        "\n\n>>> sf.get_num_threads() >= 1\n"
        "True");
  m.def(
      "set_float32_matmul_precision", [](const std::string& name) { set_float32_matmul_precision(name.c_str()); },
      nb::arg("precision"),
      "How exactly float32 is multiplied, by precision: \"highest\", as float32 at least; \"high\", to 16 bits on a "
      "CPU with tiles "
      "(AMX), in TF32 on a GPU; \"medium\", in bfloat16 on such a CPU. Sums are float32 always, and a CPU without "
      "tiles "
      "computes all three alike."
      "\n\n>>> sf.set_float32_matmul_precision(\"highest\")\n"
      ">>> sf.get_float32_matmul_precision()\n"
      "'highest'");
  m.def(
      "get_float32_matmul_precision", [] { return name_of(float32_matmul_precision()); },
      "\"highest\" at first, or what set_float32_matmul_precision was told."
      "\n\n>>> sf.get_float32_matmul_precision()\n"
      "'highest'");
}

}  // namespace sf::py
