// sf.cuda.Kernel: kernels from source. What users see is in python/scaffolding/cuda/kernel.py.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/backend/bind_cuda.h"
#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/ops/cuda_kernel/cuda_kernel.h"
#include "scaffolding/ops/fuse/cuda_source.h"

namespace sf::py {

namespace {

using cuda::Kernel;
using cuda::KernelArgument;

std::vector<KernelArgument> arguments_of(const std::string& name, nb::handle items) {
  std::vector<KernelArgument> all;
  for (nb::handle o : items) {
    Scalar s;
    if (is_tensor(o.ptr())) all.emplace_back(tensor_of(o.ptr()));
    else if (!to_scalar(o.ptr(), s))
      fail<TypeError>("cuda: kernel '", name, "': argument ", int64_t(all.size()),
                      " must be a tensor or a number, got ", type_name(o.ptr()));
    else if (s.is_float()) all.emplace_back(s.to_double());
    else if (s.kind() == Scalar::Bool) all.emplace_back(s.to_bool());
    else all.emplace_back(s.to_int());
  }
  return all;
}

Device device_of(nb::handle o) {
  Device d;
  if (!to_device(o.ptr(), d)) wrong_argument("cuda.Kernel", "device", "a device", o.ptr());
  return d;
}

}  // namespace

void bind_cuda_kernel(nb::module_& m) {
  nb::class_<Kernel>(m, "_CudaKernel")
      .def(nb::init<std::string, std::string, std::vector<std::string>, std::optional<std::vector<std::string>>>(),
           nb::arg("source"), nb::arg("name"), nb::arg("options"), nb::arg("parameters").none())
      .def_prop_ro("name", &Kernel::name)
      .def_prop_ro("parameters",
                   [](const Kernel& k) {
                     std::vector<std::string> all;
                     for (auto& p : k.parameters()) all.push_back(p.type + (p.name.empty() ? "" : " " + p.name));
                     return all;
                   })
      .def("compile",
           [](const Kernel& k, const std::string& arch) {
             std::shared_ptr<const cuda::KernelImage> image;
             {
               nb::gil_scoped_release release;
               image = k.compile(arch);
             }
             return nb::bytes(image->cubin.data(), image->cubin.size());
           })
      .def("load",
           [](const Kernel& k, nb::handle device) {
             Device d = device_of(device);
             nb::gil_scoped_release release;
             k.load(d);
           })
      .def("launch", [](const Kernel& k, std::array<int64_t, 3> grid, std::array<int64_t, 3> block,
                        nb::handle arguments, int64_t shared_memory) {
        auto values = arguments_of(k.name(), arguments);
        nb::gil_scoped_release release;
        k.launch({grid, block, shared_memory}, values);
      });
  m.def("_cuda_ensure_kernel", [](nb::handle device, const std::string& name, const std::string& source) {
    Device d = device_of(device);
    nb::gil_scoped_release release;
    return cuda::ensure_kernel(d, name, source);
  });
  m.def("_cuda_kernels_compiled", &cuda::kernels_compiled);
  m.def("_fused_cuda_sources_built", &fused_cuda_sources_built);
}

}  // namespace sf::py
