// Process groups and stores: scaffolding._core._distributed. The Python face is scaffolding/distributed/.
#include "python/bindings/distributed/bind_distributed.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "scaffolding/distributed/device_engine.h"
#include "scaffolding/distributed/engine.h"
#include "scaffolding/distributed/file_store.h"
#include "scaffolding/distributed/rendezvous.h"
#include "scaffolding/distributed/tcp_store.h"

namespace sf::py {

namespace {

using namespace distributed;

// Values are bytes in Python, which takes str for them too.
std::string value_of(nb::handle value) {
  if (nb::isinstance<nb::bytes>(value)) {
    auto bytes = nb::borrow<nb::bytes>(value);
    return {bytes.c_str(), bytes.size()};
  }
  return nb::cast<std::string>(value);
}
nb::bytes bytes_of(const std::string& value) { return nb::bytes(value.data(), value.size()); }

// f without the interpreter's lock, which other threads need while one waits.
template <class F> auto released(F f) {
  nb::gil_scoped_release release;
  return f();
}

// Waits for the group's thread without the lock, since that may have to let Python objects go.
class HeldGroup final : public ProcessGroup {
 public:
  using ProcessGroup::ProcessGroup;
  ~HeldGroup() { close_released(); }
  void close_released() {
    released([&] {
      close();
      return 0;
    });
  }
};

void bind_stores(nb::module_& m) {
  nb::class_<Store>(m, "Store", "Keys and values that processes share to find each other.")
      .def(
          "set",
          [](Store& s, const std::string& key, nb::handle value) {
            std::string v = value_of(value);
            released([&] { s.set(key, v); });
          },
          nb::arg("key"), nb::arg("value"), "The key has this value, bytes or a text, from now on.")
      .def(
          "get", [](Store& s, const std::string& key) { return bytes_of(released([&] { return s.get(key); })); },
          nb::arg("key"), "The value of a key, as bytes; waits until it is there.")
      .def("add", &Store::add, nb::arg("key"), nb::arg("amount"), nb::call_guard<nb::gil_scoped_release>(),
           "Adds amount to the number that a key has, 0 at first; returns the sum.")
      .def(
          "compare_set",
          [](Store& s, const std::string& key, nb::handle expected, nb::handle desired) {
            std::string e = value_of(expected), d = value_of(desired);
            return bytes_of(released([&] { return s.compare_set(key, e, d); }));
          },
          nb::arg("key"), nb::arg("expected_value"), nb::arg("desired_value"),
          "The key gets desired_value where it has expected_value, or where that is empty and there is no key. Returns "
          "what it has then; expected_value where there is none.")
      .def("check", &Store::check, nb::arg("keys"), nb::call_guard<nb::gil_scoped_release>(),
           "Whether all keys are there; does not wait.")
      .def("_wait", nb::overload_cast<const std::vector<std::string>&, double>(&Store::wait),
           nb::call_guard<nb::gil_scoped_release>())
      .def("delete_key", &Store::delete_key, nb::arg("key"), nb::call_guard<nb::gil_scoped_release>(),
           "Forgets a key; whether it was there.")
      .def("num_keys", &Store::num_keys, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "append",
          [](Store& s, const std::string& key, nb::handle value) {
            std::string v = value_of(value);
            released([&] { s.append(key, v); });
          },
          nb::arg("key"), nb::arg("value"), "Puts value, bytes or a text, behind what a key has.")
      .def("_set_timeout", &Store::set_timeout)
      .def_prop_ro("_timeout", &Store::timeout);
  nb::class_<HashStore, Store>(m, "HashStore", "A store in the memory of one process, for its threads.")
      .def(nb::init<>());
  nb::class_<FileStore, Store>(m, "FileStore",
                               "A store in a file, file_name, that every process can reach. world_size: the file goes "
                               "when so many stores of it are "
                               "gone; 0: it stays.")
      .def(nb::init<std::string, int>(), nb::arg("file_name"), nb::arg("world_size") = 0)
      .def_prop_ro("path", &FileStore::path);
  nb::class_<PrefixStore, Store>(m, "PrefixStore", "Another store, whose keys get a prefix.")
      .def(nb::init<std::string, std::shared_ptr<Store>>(), nb::arg("prefix"), nb::arg("store"))
      .def_prop_ro("underlying_store", &PrefixStore::underlying_store);
  nb::class_<TCPStore, Store>(m, "_TCPStore")
      .def("__init__",
           [](TCPStore* self, const std::string& host, int port, bool is_server, int world_size, double timeout) {
             released([&] { new (self) TCPStore({host, port, is_server, world_size, timeout}); });
           })
      .def_prop_ro("host", &TCPStore::host)
      .def_prop_ro("port", &TCPStore::port);
}

void bind_group(nb::module_& m) {
  auto free = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Work>(m, "Work", "A call that may still be under way.")
      .def("_wait", &Work::wait, free)
      .def("is_completed", &Work::is_completed)
      .def("is_success", &Work::is_success);
  nb::class_<HeldGroup>(m, "ProcessGroup", "Processes that work together; made by init_process_group and new_group.")
      .def(
          "__init__",
          [](HeldGroup* self, const std::string& backend, std::shared_ptr<Store> store, int rank, int world_size,
             double timeout, const std::vector<int>& ranks, const std::string& name,
             const std::string& device_backend) {
            released([&] {
              new (self) HeldGroup({backend, store, rank, world_size, timeout, ranks, name, device_backend});
            });
          },
          nb::arg("backend"), nb::arg("store").none(), nb::arg("rank"), nb::arg("world_size"), nb::arg("timeout"),
          nb::arg("ranks"), nb::arg("name"), nb::arg("device_backend") = "")
      .def("rank", &ProcessGroup::rank)
      .def("size", &ProcessGroup::size)
      .def("name", &ProcessGroup::backend)
      .def_prop_ro("group_name", &ProcessGroup::group_name)
      .def_prop_ro("_ranks", &ProcessGroup::ranks)
      .def_prop_ro("_timeout", &ProcessGroup::timeout)
      .def("_set_timeout", &ProcessGroup::set_timeout)
      .def("_set_deterministic", &ProcessGroup::set_deterministic)
      .def("_device_begun", &ProcessGroup::device_begun)
      .def(
          "_share_device", [](HeldGroup& g, HeldGroup* part) { released([&] { return g.share_device(part), 0; }); },
          nb::arg("part").none())
      .def("_close", &HeldGroup::close_released)
      .def_prop_ro("_store", &ProcessGroup::store)
      .def("_counts",
           [](const HeldGroup& g) {
             auto c = g.counts();
             return nb::make_tuple(c.calls, c.bytes);
           })
      .def("_all_reduce", &ProcessGroup::all_reduce, free)
      .def("_all_reduce_coalesced", &ProcessGroup::all_reduce_coalesced, free)
      .def("_reduce", &ProcessGroup::reduce, free)
      .def("_broadcast", &ProcessGroup::broadcast, free)
      .def("_all_gather", &ProcessGroup::all_gather, free)
      .def("_all_gather_into_tensor", &ProcessGroup::all_gather_into_tensor, free)
      .def("_reduce_scatter_tensor", &ProcessGroup::reduce_scatter_tensor, free)
      .def("_all_to_all_single", &ProcessGroup::all_to_all_single, free)
      .def("_gather", &ProcessGroup::gather, free)
      .def("_scatter", &ProcessGroup::scatter, free)
      .def("_barrier", &ProcessGroup::barrier, free)
      .def("_monitored_barrier", &ProcessGroup::monitored_barrier, free)
      .def("_isend", &ProcessGroup::isend, free)
      .def("_irecv", &ProcessGroup::irecv, free);
}

}  // namespace

void bind_distributed(nb::module_& core) {
  nb::module_ m = core.def_submodule("_distributed");
  nb::enum_<ReduceOp>(m, "ReduceOp", "How tensors are put together.")
      .value("SUM", ReduceOp::SUM)
      .value("AVG", ReduceOp::AVG)
      .value("PRODUCT", ReduceOp::PRODUCT)
      .value("MIN", ReduceOp::MIN)
      .value("MAX", ReduceOp::MAX)
      .value("BAND", ReduceOp::BAND)
      .value("BOR", ReduceOp::BOR)
      .value("BXOR", ReduceOp::BXOR);
  bind_stores(m);
  m.def("_rendezvous", [](const std::string& method, int rank, int world_size, double timeout) {
    Rendezvous r = released([&] { return rendezvous(method, rank, world_size, timeout); });
    return nb::make_tuple(r.store, r.rank, r.world_size);
  });
  bind_group(m);
  m.def("_check_backend", &check_backend);
  m.def("_engine_available", [](const std::string& backend) {
    std::string why;
    bool is = backend == "nccl" ? nccl_available(&why) : engine_available(backend, &why);
    return nb::make_tuple(is, why);
  });
}

}  // namespace sf::py
