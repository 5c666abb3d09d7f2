// Memory plans of pipelines whose components Python owns.
#include "python/bindings/diffusion/bind_memory_plan.h"

#include <cmath>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/diffusion/python_components.h"
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/diffusion/memory/pipeline_memory.h"

namespace sf::py {

namespace {

using namespace diffusion;

nb::dict part_of(const MemoryPlan& plan, const PartPlan& p) {
  nb::dict out;
  out["name"] = p.facts.name;
  out["device"] = p.on_device ? plan.device : std::string("cpu");
  out["format"] = p.facts.format;
  out["bytes"] = p.facts.bytes;
  out["mapped"] = p.facts.mapped;
  out["residency"] = p.residency == Residency::Resident ? "resident"
                     : p.residency == Residency::Phase  ? "phase"
                                                        : "streamed";
  out["blocks"] = p.facts.blocks.size();
  out["resident_blocks"] = p.resident_blocks();
  out["weights"] = p.weights;
  out["streamed"] = p.blocks.streamed_bytes;
  out["pinned"] = p.pinned;
  out["activations"] = p.activations;
  return out;
}

std::optional<int64_t> amount(const char* name, nb::handle value) {
  const std::string who = std::string("memory_plan: ") + name;
  if (value.is_none()) return {};
  if (PyUnicode_Check(value.ptr())) return bytes_of(who, nb::cast<std::string>(value));
  if (PyBool_Check(value.ptr()) || !(PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr())))
    wrong_argument("memory_plan", name, "GB or a text such as '6GB'", value.ptr());
  const double gigabytes = nb::cast<double>(value);
  SF_CHECK(std::isfinite(gigabytes) && gigabytes >= 0 && gigabytes < 1e9, who, " must be a number of GB, got ",
           gigabytes);
  return int64_t(gigabytes * 1e9);
}

}  // namespace

void bind_memory_plan(nb::module_& m) {
  nb::class_<PeakMemory>(m, "PeakMemory")
      .def("__init__",
           [](PeakMemory* self, const std::string& device) {
             const Device d(device);
             new (self) PeakMemory(d.is_cuda() && backend_available(d.type) ? std::optional(d) : std::nullopt);
           })
      .def_prop_ro("host", &PeakMemory::host)
      .def_prop_ro("device", &PeakMemory::device);
  nb::class_<MemoryPlan>(m, "MemoryPlan", "What pipe.memory_plan(...) proposes; its numbers are bytes.")
      .def_ro("profile", &MemoryPlan::profile)
      .def_ro("device", &MemoryPlan::device)
      .def_prop_ro("guidance_mode", [](const MemoryPlan& p) { return name_of(p.guidance); })
      .def_prop_ro("cleanup", [](const MemoryPlan& p) { return name_of(p.cleanup); })
      .def_prop_ro("vae_slicing", [](const MemoryPlan& p) { return p.vae.slicing; })
      .def_prop_ro("vae_tiling", [](const MemoryPlan& p) { return p.vae.tiling; })
      .def_ro("device_budget", &MemoryPlan::device_budget)
      .def_ro("host_budget", &MemoryPlan::host_budget)
      .def_ro("device_peak", &MemoryPlan::device_peak)
      .def_ro("host_peak", &MemoryPlan::host_peak)
      .def_prop_ro("decode_bytes", &MemoryPlan::decode_bytes)
      .def_ro("notes", &MemoryPlan::notes)
      .def_prop_ro("parts",
                   [](const MemoryPlan& plan) {
                     nb::dict out;
                     for (auto& p : plan.parts) out[p.facts.name.c_str()] = part_of(plan, p);
                     return out;
                   })
      .def("_stream_options",  // of a part that comes and goes, as a streamer's keywords
           [](const MemoryPlan& plan, const std::string& name) -> nb::object {
             const PartPlan* p = plan.find(name);
             const auto options = p ? plan.stream_options(*p, nullptr) : std::nullopt;
             if (!options) return nb::none();
             nb::dict out;
             out["device"] = options->device.str();
             out["resident_bytes"] = options->resident_bytes;
             out["pinned_bytes"] = options->pinned_bytes;
             out["load_now"] = options->load_now;
             return out;
           })
      .def("_bytes_to_evict",
           [](const MemoryPlan& plan, const MemoryPlan& before, const std::string& name) {
             const PartPlan* p = plan.find(name);
             return p ? plan.bytes_to_evict(before, *p) : std::nullopt;
           })
      .def("_with_less", &MemoryPlan::with_less)
      .def_prop_ro("_savings",
                   [](const MemoryPlan& plan) {
                     const RunSavings s = plan.savings();
                     return nb::make_tuple(s.sequential_guidance, s.between_phases, s.every_steps);
                   })
      .def("_peaks", &MemoryPlan::peaks, nb::arg("measured"))
      .def("__str__", [](const MemoryPlan& plan) { return plan.str(); })
      .def("__repr__", [](const MemoryPlan& plan) { return plan.str(); });
  m.def("save_decoding", [](const std::string& class_name, nb::dict parts, const MemoryPlan& plan) {
    if (auto vae = pipeline_of(class_name, parts)->the_autoencoder()) vae->save(plan.vae);
  });
  m.def("memory_profiles", [] { return profile_names(); });
  m.def("bytes_of", &bytes_of);
  m.def(
      "memory_plan",
      [](const std::string& class_name, nb::dict parts, const std::string& profile, nb::handle max_vram,
         nb::handle max_ram, std::optional<int64_t> height, std::optional<int64_t> width, std::optional<int64_t> frames,
         int64_t batch, nb::handle device) {
        auto pipeline = pipeline_of(class_name, parts);
        NetworkModules modules;
        for (auto& slot : pipeline->components())
          if (slot.network() && is_module(nb::object(parts[slot.name.c_str()]).ptr()))
            modules[slot.name] = reinterpret_cast<PyModule*>(nb::object(parts[slot.name.c_str()]).ptr())->module;
        const PlanRequest request{profile, amount("max_vram", max_vram), amount("max_ram", max_ram)};
        std::optional<Device> gpu;
        if (Device d; !device.is_none()) {
          if (!to_device(device.ptr(), d) || !d.is_cuda())
            wrong_argument("memory_plan", "device", "a CUDA device", device.ptr());
          gpu = d;
        }
        nb::gil_scoped_release release;
        return plan_memory(*pipeline, options_for_shape(*pipeline, {height, width, frames, batch}), request, gpu,
                           modules);
      },
      nb::arg("class_name"), nb::arg("parts"), nb::arg("profile"), nb::arg("max_vram").none(),
      nb::arg("max_ram").none(), nb::arg("height").none(), nb::arg("width").none(), nb::arg("frames").none(),
      nb::arg("batch"), nb::arg("device").none());
}

}  // namespace sf::py
