// Streamers of modules: _core._streaming; the Python face is python/scaffolding/nn/streaming.py.
#include "python/bindings/nn/bind_streaming.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/nn/streaming/layerwise_casting.h"
#include "scaffolding/nn/streaming/streamed_graph.h"
#include "scaffolding/nn/streaming/streamer.h"
#include "scaffolding/nn/streaming/widened_weights.h"

namespace sf::py {

namespace {

Device device_of(nb::handle o, const char* op) {
  Device d;
  SF_CHECK_AS(TypeError, to_device(o.ptr(), d), op, ": device must be a device or its name");
  return d;
}

DType dtype_of_object(nb::handle o) {
  DType t;
  SF_CHECK_AS(TypeError, to_dtype(o.ptr(), t), "enable_layerwise_casting: dtypes must be dtypes");
  return t;
}

using Phases = std::shared_ptr<nn::StreamPhases>;
struct PhasesObject {
  Phases phases = std::make_shared<nn::StreamPhases>();
};

// close() detaches, whoever still holds the object.
struct StreamerObject {
  std::unique_ptr<nn::Streamer> streamer;
  nn::Streamer& get() const {
    SF_CHECK_AS(RuntimeError, streamer, "Streamer: was closed");
    return *streamer;
  }
};

struct CastingObject {
  std::unique_ptr<nn::LayerwiseCasting> casting;
  nn::LayerwiseCasting& get() const {
    SF_CHECK_AS(RuntimeError, casting, "LayerwiseCasting: was closed");
    return *casting;
  }
};

struct WidenedObject {
  std::unique_ptr<nn::WidenedWeights> weights;
  nn::WidenedWeights& get() const {
    SF_CHECK_AS(RuntimeError, weights, "WidenedWeights: was closed");
    return *weights;
  }
};

nb::dict statistics(const StreamerObject& object) {
  const nn::Streamer& s = object.get();
  const nn::StreamStatistics now = s.statistics();
  nb::dict out;
  auto add = [&](const char* name, int64_t value) { out[name] = value; };
  add("groups", now.groups), add("resident_groups", now.resident_groups);
  add("weight_bytes", now.weight_bytes), add("resident_bytes", now.resident_bytes);
  add("slot_bytes", now.slot_bytes), add("pinned_bytes", now.pinned_bytes);
  add("copies", now.copies), add("copied_bytes", now.copied_bytes);
  add("misses", now.misses), add("waits", now.waits), add("written_back", now.written_back);
  return out;
}

// Of modules whose forward is Python's, which C++ does not see called: their objects, and their numbers.
nb::list python_places(const std::vector<nn::ResidencePlace>& places) {
  nb::list out;
  for (size_t i = 0; i < places.size(); ++i) {
    auto* object = static_cast<PyModule*>(places[i].module->python);
    if (object && !object->native) out.append(nb::make_tuple(nb::borrow(reinterpret_cast<PyObject*>(object)), i));
  }
  return out;
}

}  // namespace

void bind_streaming(nb::module_& core) {
  nb::module_ m = core.def_submodule("_streaming");
  nb::class_<PhasesObject>(m, "Phases").def(nb::init<>());
  nb::class_<StreamerObject>(m, "Streamer")
      .def(
          "__init__",
          [](StreamerObject* self, nb::handle module, nb::handle device, bool leaves, int64_t blocks_per_group,
             const std::vector<std::string>& only, int64_t resident_bytes, int64_t pinned_bytes, bool pin_weights,
             int64_t slots, bool use_stream, bool load_now, PhasesObject* phases) {
            nn::StreamOptions o{.device = device_of(device, "Streamer"),
                                .level = leaves ? nn::StreamLevel::Leaf : nn::StreamLevel::Block,
                                .blocks_per_group = blocks_per_group,
                                .only = only,
                                .resident_bytes = resident_bytes,
                                .pinned_bytes = pinned_bytes,
                                .pin_weights = pin_weights,
                                .slots = slots,
                                .use_stream = use_stream,
                                .load_now = load_now};
            if (phases) o.phases = phases->phases;
            new (self) StreamerObject{std::make_unique<nn::Streamer>(module_of(module, "Streamer"), o)};
          },
          nb::arg("module"), nb::kw_only(), nb::arg("device"), nb::arg("leaves") = false,
          nb::arg("blocks_per_group") = 1, nb::arg("only") = std::vector<std::string>(), nb::arg("resident_bytes") = 0,
          nb::arg("pinned_bytes") = INT64_MAX, nb::arg("pin_weights") = true, nb::arg("slots") = 3,
          nb::arg("use_stream") = true, nb::arg("load_now") = true, nb::arg("phases") = nb::none())
      .def("close", [](StreamerObject& s) { s.streamer.reset(); })
      .def("load", [](StreamerObject& s) { s.get().load(); })
      .def("offload", [](StreamerObject& s) { s.get().offload(); })
      .def(
          "evict", [](StreamerObject& s, int64_t bytes) { return s.get().evict(bytes); }, nb::arg("bytes"))
      .def_prop_ro("is_loaded", [](StreamerObject& s) { return s.get().is_loaded(); })
      .def("statistics", &statistics)
      .def("resident_names", [](StreamerObject& s) { return s.get().resident_names(); })
      .def("streamed_names", [](StreamerObject& s) { return s.get().streamed_names(); })
      .def("python_places", [](StreamerObject& s) { return python_places(s.get().places()); })
      .def("enter", [](StreamerObject& s, size_t place) { s.get().places().at(place).residence->enter(); })
      .def("leave", [](StreamerObject& s, size_t place) { s.get().places().at(place).residence->leave(); });
  nb::class_<nn::StreamedGraph>(m, "StreamedGraph")
      .def("__init__", [](nn::StreamedGraph* self, StreamerObject& s,
                          const nb::callable& f) { new (self) nn::StreamedGraph(s.get(), [&] { f(); }); })
      .def("replay", &nn::StreamedGraph::replay)
      .def_prop_ro("is_current", &nn::StreamedGraph::is_current)
      .def_prop_ro("graphs", &nn::StreamedGraph::graphs)
      .def_prop_ro("nodes", &nn::StreamedGraph::nodes);
  nb::class_<CastingObject>(m, "LayerwiseCasting")
      .def("__init__",
           [](CastingObject* self, nb::handle module, nb::handle storage, nb::handle compute,
              const std::vector<std::string>& skip) {
             new (self) CastingObject{
                 std::make_unique<nn::LayerwiseCasting>(module_of(module, "enable_layerwise_casting"),
                                                        dtype_of_object(storage), dtype_of_object(compute), skip)};
           })
      .def("close", [](CastingObject& c) { c.casting.reset(); })
      .def("python_places", [](CastingObject& c) { return python_places(c.get().places()); })
      .def("enter", [](CastingObject& c, size_t place) { c.get().places().at(place).residence->enter(); })
      .def("leave", [](CastingObject& c, size_t place) { c.get().places().at(place).residence->leave(); })
      .def_prop_ro("tensors", [](CastingObject& c) { return c.get().tensors(); });
  nb::class_<WidenedObject>(m, "WidenedWeights")
      .def("__init__",
           [](WidenedObject* self, nb::handle module, nb::handle compute) {
             new (self) WidenedObject{
                 std::make_unique<nn::WidenedWeights>(module_of(module, "WidenedWeights"), dtype_of_object(compute))};
           })
      .def("close", [](WidenedObject& w) { w.weights.reset(); })
      .def("python_places", [](WidenedObject& w) { return python_places(w.get().places()); })
      .def("enter", [](WidenedObject& w, size_t place) { w.get().places().at(place).residence->enter(); })
      .def("leave", [](WidenedObject& w, size_t place) { w.get().places().at(place).residence->leave(); });
}

}  // namespace sf::py
