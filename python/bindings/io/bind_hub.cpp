// The hub's cache and downloads, as _core._hub: what scaffolding/hub.py is made of.
#include "python/bindings/io/bind_hub.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "scaffolding/io/hub/model_folder.h"

namespace sf::py {

namespace {

using namespace io;

// Downloads run without the GIL; it is taken to look for Ctrl-C and to show progress.
template <class F> auto download(const HubOptions& options, nb::handle progress, const F& f) {
  HubOptions with = options;
  with.progress = [&](const HubProgress& p) {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw_python_error();
    if (!progress.is_none()) progress(p.done, p.total, p.files, p.all_files);
  };
  nb::gil_scoped_release released;
  return f(with);
}

}  // namespace

void bind_hub(nb::module_& m) {
  nb::module_ hub = m.def_submodule("_hub");
  nb::class_<HubOptions>(hub, "Options")
      .def(nb::init<>())
      .def_rw("revision", &HubOptions::revision)
      .def_rw("cache_dir", &HubOptions::cache_dir)
      .def_rw("token", &HubOptions::token, nb::arg().none())
      .def_rw("endpoint", &HubOptions::endpoint)
      .def_rw("local_files_only", &HubOptions::local_files_only)
      .def_rw("force_download", &HubOptions::force_download)
      .def_rw("allow_patterns", &HubOptions::allow_patterns)
      .def_rw("ignore_patterns", &HubOptions::ignore_patterns)
      .def_rw("max_workers", &HubOptions::max_workers)
      .def_rw("retries", &HubOptions::retries)
      .def_rw("retry_wait", &HubOptions::retry_wait);
  hub.def("cache_folder", &default_hub_cache);
  hub.def("is_repo_id", &is_repo_id);
  hub.def("flag", &hub_flag);
  hub.def("matches_pattern", &matches_pattern);
  hub.def("find_in_cache", &find_in_cache);
  hub.def("download",
          [](const std::string& repo, const std::string& file, const HubOptions& options, nb::handle progress) {
            return download(options, progress, [&](const HubOptions& o) { return hub_download(repo, file, o); });
          });
  hub.def("snapshot", [](const std::string& repo, const HubOptions& options, nb::handle progress) {
    return download(options, progress, [&](const HubOptions& o) { return snapshot_download(repo, o); });
  });
  hub.def("list_files", [](const std::string& repo, const HubOptions& options) {
    auto listing = download(options, nb::none(), [&](const HubOptions& o) { return list_repo_files(repo, o); });
    std::vector<std::string> names;
    for (auto& f : listing.files) names.push_back(f.path);
    return names;
  });
  hub.def("model_folder", [](const std::string& name, const HubOptions& options, const std::string& subfolder,
                             const std::string& variant, std::optional<bool> use_safetensors,
                             const std::vector<std::string>& passed, nb::handle progress) {
    return download(options, progress, [&](const HubOptions& o) {
      return resolve_model_folder(name, {o, subfolder, variant, use_safetensors, passed});
    });
  });
  hub.def("model_file", [](const std::string& link, const HubOptions& options, nb::handle progress) {
    return download(options, progress, [&](const HubOptions& o) { return resolve_model_file(link, o); });
  });
  hub.def("pipeline_files",
          [](const std::vector<std::string>& files, const std::vector<std::string>& folders, const std::string& variant,
             std::optional<bool> use_safetensors, const std::vector<std::string>& passed) {
            return pipeline_files(files, folders, {{}, "", variant, use_safetensors, passed});
          });
}

}  // namespace sf::py
