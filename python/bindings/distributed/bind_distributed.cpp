// Process groups: scaffolding._core._distributed. The Python face is scaffolding/distributed/.
#include "python/bindings/distributed/bind_distributed.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "scaffolding/distributed/process_group.h"

namespace sf::py {

void bind_distributed(nb::module_& core) {
  using namespace distributed;
  nb::module_ m = core.def_submodule("_distributed");
  auto released = nb::call_guard<nb::gil_scoped_release>();
  nb::enum_<Reduction>(m, "ReduceOp", "How all_reduce puts tensors together.")
      .value("SUM", Reduction::Sum)
      .value("AVG", Reduction::Mean)
      .value("PRODUCT", Reduction::Product)
      .value("MIN", Reduction::Min)
      .value("MAX", Reduction::Max);
  nb::class_<ProcessGroup>(m, "ProcessGroup",
                           "Processes that work together, joined by TCP in a ring; made by init_process_group.")
      .def(
          "__init__",
          [](ProcessGroup* self, const std::string& address, int port, int rank, int world_size, double timeout) {
            new (self) ProcessGroup({address, port, rank, world_size, timeout});
          },
          nb::arg("address"), nb::arg("port"), nb::arg("rank"), nb::arg("world_size"), nb::arg("timeout"), released)
      .def("rank", &ProcessGroup::rank)
      .def("size", &ProcessGroup::size)
      .def("all_reduce", &ProcessGroup::all_reduce, released)
      .def("broadcast", &ProcessGroup::broadcast, released)
      .def("all_gather", &ProcessGroup::all_gather, released)
      .def("barrier", &ProcessGroup::barrier, released);
}

}  // namespace sf::py
