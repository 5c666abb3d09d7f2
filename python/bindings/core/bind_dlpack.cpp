// DLPack both ways without a copy: versioned capsules (1.0) for those who ask for them, else the older form.
#include <nanobind/stl/pair.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/dlpack.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cpu/sealed_pages.h"

namespace sf::py {

namespace {

constexpr const char* kOld = "dltensor";
constexpr const char* kOldUsed = "used_dltensor";
constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kVersionedUsed = "used_dltensor_versioned";

dlpack::Device dl_device(const Tensor& t) {
  SF_CHECK(!t.device().is_meta(), "__dlpack__: a meta tensor has no memory to share");
  return {t.device().is_cuda() ? dlpack::kCUDA : dlpack::kCPU, t.device().is_cuda() ? t.device().index : 0};
}

dlpack::DataType dl_dtype(DType t) {
  uint8_t bits = uint8_t(size_of(t) * 8);
  switch (t) {
    case kBool: return {dlpack::kBool, bits, 1};
    case kUInt8: return {dlpack::kUInt, bits, 1};
    case kBFloat16: return {dlpack::kBFloat, bits, 1};
    case kFloat8E4M3: return {dlpack::kFloat8E4M3FN, bits, 1};
    case kFloat8E5M2: return {dlpack::kFloat8E5M2, bits, 1};
    default: return {is_floating(t) ? dlpack::kFloat : dlpack::kInt, bits, 1};
  }
}

DType dtype_of(dlpack::DataType d) {
  SF_CHECK_AS(TypeError, d.lanes == 1, "from_dlpack: vector elements are not supported");
  for (int i = 0; i < kNumDTypes; ++i) {
    dlpack::DataType have = dl_dtype(DType(i));
    if (have.code == d.code && have.bits == d.bits) return DType(i);
  }
  fail<TypeError>("from_dlpack: no dtype for DLPack code ", int(d.code), " with ", int(d.bits), " bits");
}

// What an exported capsule keeps alive.
template <class Managed> struct Export {
  Tensor t;
  Shape sizes, strides;
  Managed managed;
  static void destroy(Managed* m) { delete static_cast<Export*>(m->manager_ctx); }
};

template <class Managed> Managed* exported(const Tensor& t) {
  cpu::will_write(t);
  auto* e = new Export<Managed>{t, t.shape(), t.strides(), {}};
  dlpack::Tensor& d = e->managed.dl_tensor;
  d = {t.data_ptr(), dl_device(t), int32_t(t.ndim()), dl_dtype(t.dtype()), e->sizes.begin(), e->strides.begin(), 0};
  e->managed.manager_ctx = e;
  e->managed.deleter = Export<Managed>::destroy;
  return &e->managed;
}

// A capsule nobody took owns its tensor still.
template <class Managed> void drop_capsule(PyObject* capsule) {
  const char* name = std::is_same_v<Managed, dlpack::ManagedTensor> ? kOld : kVersioned;
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* m = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  m->deleter(m);
}

// The array API's numbers for CUDA's streams: 1 is the default one, others are handles, -1 asks for no order.
// None is the default one.
constexpr int64_t kDefaultStream = 1, kPerThreadStream = 2, kNoOrder = -1;

// What the consumer queues on its stream runs after what is queued on ours.
void order_before(const Tensor& t, nb::handle stream) {
  int64_t consumer = stream.is_none() ? (t.device().is_cuda() ? kDefaultStream : kNoOrder) : nb::cast<int64_t>(stream);
  if (consumer == kNoOrder) return;
  SF_CHECK(t.device().is_cuda(), "__dlpack__: stream belongs to tensors on CUDA, got stream=", consumer, " for one on ",
           t.device());
  SF_CHECK(consumer > 0 && consumer != kPerThreadStream,
           "__dlpack__: stream must be 1 (the default one), a stream's handle or -1 (no order), got ", consumer);
  Accelerator& gpu = accelerator(t.device());
  int index = t.device().index;
  StreamHandle ours = gpu.current_stream(index),
               theirs = consumer == kDefaultStream ? nullptr : reinterpret_cast<StreamHandle>(consumer);
  if (ours == theirs) return;
  EventHandle queued = gpu.make_event(index, false);
  gpu.record_event(index, queued, ours);
  gpu.stream_wait(index, theirs, queued);
  gpu.destroy_event(index, queued);
}

nb::object to_dlpack(const Tensor& self, nb::handle stream, nb::handle max_version, nb::handle device,
                     nb::handle copy) {
  SF_CHECK_AS(RuntimeError, !self.requires_grad(), "__dlpack__: the tensor requires a gradient; use tensor.detach()");
  Tensor t = self;
  if (!device.is_none()) {
    auto [type, id] = nb::cast<std::pair<int, int>>(device);
    dlpack::Device have = dl_device(t);
    if (type != have.type || id != have.id) {
      SF_CHECK(type == dlpack::kCPU && copy.ptr() != Py_False,
               "__dlpack__: cannot give the tensor on another device without a copy");
      t = t.to(Device::CPU);
    }
  }
  bool copied = copy.ptr() == Py_True;
  if (copied) t = t.clone();
  order_before(t, stream);
  bool versioned = !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
  if (!versioned)
    return steal(PyCapsule_New(exported<dlpack::ManagedTensor>(t), kOld, drop_capsule<dlpack::ManagedTensor>));
  auto* m = exported<dlpack::ManagedTensorVersioned>(t);
  m->version = {1, 0};
  m->flags = copied ? dlpack::kCopied : 0;
  return steal(PyCapsule_New(m, kVersioned, drop_capsule<dlpack::ManagedTensorVersioned>));
}

template <class Managed> Tensor imported(Managed* m) {
  std::shared_ptr<Managed> owner(m, [](Managed* p) {
    if (!p->deleter) return;
    PyGILState_STATE gil = PyGILState_Ensure();  // the producer may be Python code
    p->deleter(p);
    PyGILState_Release(gil);
  });
  const dlpack::Tensor& d = m->dl_tensor;
  Device device;
  if (d.device.type == dlpack::kCUDA || d.device.type == dlpack::kCUDAManaged)
    device = Device(Device::CUDA, d.device.id);
  else
    SF_CHECK(d.device.type == dlpack::kCPU || d.device.type == dlpack::kCUDAHost, "from_dlpack: unknown device type ",
             int(d.device.type));
  DType t = dtype_of(d.dtype);
  Shape sizes(d.shape, d.ndim), strides = d.strides ? Shape(d.strides, d.ndim) : contiguous_strides(sizes);
  int64_t span = 1;
  for (int64_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] <= 1) strides[i] = std::max<int64_t>(strides[i], 1);
    SF_CHECK(strides[i] >= 0, "from_dlpack: negative strides are not supported");
    span += std::max<int64_t>(sizes[i] - 1, 0) * strides[i];
  }
  size_t bytes = numel(sizes) ? size_t(span) * size_of(t) : 0;
  char* data = d.data ? static_cast<char*>(d.data) + d.byte_offset : nullptr;
  return Tensor::strided(Storage::borrow(data, bytes, device, [owner] {}), sizes, strides, 0, t);
}

Tensor from_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kVersioned)) {
    auto* m = static_cast<dlpack::ManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kVersioned));
    SF_CHECK(m->version.major == 1, "from_dlpack: DLPack version ", int64_t(m->version.major), " is not supported");
    PyCapsule_SetName(capsule, kVersionedUsed);
    return imported(m);
  }
  SF_CHECK(PyCapsule_IsValid(capsule, kOld), "from_dlpack: not a DLPack capsule, or one that was consumed already");
  auto* m = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, kOld));
  PyCapsule_SetName(capsule, kOldUsed);
  return imported(m);
}

}  // namespace

Tensor from_dlpack(PyObject* object) {
  nb::handle o(object);
  if (PyCapsule_CheckExact(o.ptr())) return from_capsule(o.ptr());
  SF_CHECK_AS(TypeError, nb::hasattr(o, "__dlpack__"),
              "from_dlpack: the object has no __dlpack__: ", type_name(o.ptr()));
  nb::object method = o.attr("__dlpack__"), capsule, stream = nb::none();
  if (nb::hasattr(o, "__dlpack_device__")) {
    auto [type, id] = nb::cast<std::pair<int, int>>(o.attr("__dlpack_device__")());
    if (type == dlpack::kCUDA || type == dlpack::kCUDAManaged) {
      StreamHandle ours = accelerator(Device(Device::CUDA, id)).current_stream(id);
      stream = nb::int_(ours ? int64_t(reinterpret_cast<intptr_t>(ours)) : kDefaultStream);
    }
  }
  try {
    capsule = method(nb::arg("stream") = stream, nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;  // an older producer does not know the argument
    capsule = method(nb::arg("stream") = stream);
  }
  return from_capsule(capsule.ptr());
}

void bind_dlpack(nb::module_& m) {
  tensor_method("__dlpack__", &to_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
                nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none());
  tensor_method("__dlpack_device__", [](const Tensor& t) {
    dlpack::Device d = dl_device(t);
    return nb::make_tuple(d.type, d.id);
  });
  m.def(
      "from_dlpack", [](nb::handle o) { return from_dlpack(o.ptr()); }, nb::arg("ext_tensor"),
      "A tensor that shares the memory of ext_tensor, another library's."
      "\n\n>>> import numpy\n"
      ">>> sf.from_dlpack(numpy.arange(3))\n"
      "tensor([0, 1, 2])");
}

}  // namespace sf::py
