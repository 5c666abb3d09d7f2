// A tensor's memory: other dtypes over the same bytes, bytes for pickling, devices.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/backend/cpu/peak.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::py {

namespace {

// The same bytes as another dtype. With another size of element the last dimension grows or shrinks.
Tensor view_dtype(const Tensor& x, DType t) {
  autograd::refuse_gradient("view as another dtype", {x});
  int64_t from = int64_t(size_of(x.dtype())), to = int64_t(size_of(t)), offset = x.storage_offset() * from;
  Shape sizes = x.shape(), strides = x.strides();
  if (from != to) {
    SF_CHECK(x.ndim() > 0, "view: a 0-d tensor of ", x.dtype(), " cannot be seen as ", t,
             ", whose elements have another size");
    SF_CHECK(strides.back() == 1 || sizes.back() == 1, "view: the last dimension must be contiguous to be seen as ", t,
             ", got strides ", x.strides());
    SF_CHECK(sizes.back() * from % to == 0 && offset % to == 0, "view: the last dimension of ", x.shape(),
             " is not a whole number of ", t);
    sizes.back() = sizes.back() * from / to;
    for (int64_t i = 0; i + 1 < x.ndim(); ++i) {
      SF_CHECK(strides[i] * from % to == 0, "view: strides ", x.strides(), " are not whole numbers of ", t);
      strides[i] = strides[i] * from / to;
    }
  }
  Tensor y = Tensor::strided(x.storage(), sizes, strides, offset / to, t);
  autograd::mark_view(y, x);
  return y;
}

// Strides fill memory without gaps or overlaps, in whatever order of dimensions.
bool is_dense(const Tensor& t) {
  std::vector<std::pair<int64_t, int64_t>> order;
  for (int64_t i = 0; i < t.ndim(); ++i)
    if (t.shape()[i] != 1) order.push_back({t.strides()[i], t.shape()[i]});
  std::sort(order.begin(), order.end());
  int64_t want = 1;
  for (auto [stride, size] : order) {
    if (stride != want) return false;
    want *= size;
  }
  return true;
}

nb::tuple to_dense_bytes(const Tensor& x) {
  Tensor t = x.to(Device::CPU);
  SF_CHECK_AS(RuntimeError, !t.device().is_meta(), "pickle: a meta tensor has no values");
  if (t.numel() == 0 || !is_dense(t)) t = t.contiguous();
  nb::object strides = steal(PySequence_Tuple(steal(wrap_size(t.strides())).ptr()));
  return nb::make_tuple(nb::bytes(static_cast<const char*>(t.data_ptr()), t.nbytes()), strides);
}

Tensor from_dense_bytes(nb::bytes data, nb::handle dtype, const Shape& size, const Shape& stride) {
  DType t;
  if (!to_dtype(dtype.ptr(), t)) wrong_argument("unpickle", "dtype", "a dtype", dtype.ptr());
  Tensor y = empty_strided(size, stride, t, Device());
  SF_CHECK(data.size() == y.nbytes() && (y.numel() == 0 || is_dense(y)), "unpickle: ", data.size(),
           " bytes do not fill ", size, " of ", t);
  if (y.numel()) std::memcpy(y.data_ptr(), data.c_str(), y.nbytes());
  return y;
}

Device device_named(nb::handle o) {
  Device d;
  if (!to_device(o.ptr(), d)) wrong_argument("device", "device", "a device", o.ptr());
  return d;
}

}  // namespace

void bind_memory(nb::module_& m) {
  m.def("_view_dtype", [](const Tensor& x, nb::handle dtype) {
    DType t;
    if (!to_dtype(dtype.ptr(), t)) wrong_argument("view", "size", "integers or a dtype", dtype.ptr());
    return view_dtype(x, t);
  });
  m.def("_to_dense_bytes", &to_dense_bytes);
  m.def("_from_dense_bytes", &from_dense_bytes);
  m.def("_broadcast_shapes", [](const std::vector<Shape>& shapes) {
    Shape s;
    for (auto& t : shapes) s = broadcast_shapes("broadcast_shapes", s, t);
    return s;
  });
  m.def("_backend_available", [](nb::handle device) {
    std::string why;
    bool available = backend_available(device_named(device).type, &why);
    return std::pair(available, available ? std::string() : why);
  });
  m.def("_cpu_memory",
        [] { return nb::make_tuple(cpu::allocated_bytes(), cpu::max_allocated_bytes(), cpu::cached_bytes()); });
  m.def("_cpu_reset_peak", &cpu::reset_peak);
  m.def("_free_host_memory", [] {  // (free, total, [(limit's name, what it leaves)])
    const FreeHostMemory memory = free_host_memory();
    nb::list limits;
    for (auto& limit : memory.limits) limits.append(nb::make_tuple(limit.name, limit.free));
    return nb::make_tuple(memory.free, memory.total, limits);
  });
  m.def("_cpu_empty_cache", &cpu::empty_cache);
  m.def("_providers", [] {  // of kernels that are registered now
    nb::set names;
    for (KernelTableBase* table = KernelTableBase::first(); table; table = table->next())
      for (int d = 0; d < kNumDeviceTypes; ++d)
        for (int i = 0; i < table->count(DeviceType(d)); ++i)
          names.add(nb::str(table->entry(DeviceType(d), i).provider));
    return names;
  });
  m.def("_instruction_sets", [] {
    nb::list names;
    for (auto isa : {cpu::Isa::base, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::avx512bf16, cpu::Isa::avx512amx})
      if (cpu::has(isa)) names.append(cpu::name(isa));
    return names;
  });
  m.def("_cpu_units", [] {  // [(name, operations per second)]
    std::vector<cpu::Peak> peaks;
    {
      nb::gil_scoped_release release;
      peaks = cpu::measured_peaks();
    }
    nb::list units;
    for (const cpu::Peak& peak : peaks) units.append(nb::make_tuple(peak.unit.name, peak.rate.wall));
    return units;
  });
  m.def("_device_count", [](nb::handle device) {
    Device d = device_named(device);
    return backend_available(d.type) ? backend(d).device_count() : 0;
  });
  m.def("_synchronize", [](nb::handle device) {
    Device d = device_named(device);
    nb::gil_scoped_release release;
    backend(d).synchronize(d.index);
  });
  m.attr("inf") = std::numeric_limits<double>::infinity();
  m.attr("nan") = std::nan("");
  m.attr("pi") = std::numbers::pi;
  m.attr("e") = std::numbers::e;
}

}  // namespace sf::py
