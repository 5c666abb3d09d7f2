#include "scaffolding/models/single_file/single_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "scaffolding/core/default_device.h"
#include "scaffolding/io/scaled_checkpoint.h"
#include "scaffolding/models/names/named_checkpoint.h"
#include "scaffolding/models/upscalers/upscaling_model.h"

namespace sf::models {

namespace {

// What stands before the sources' names in the file: of several prefixes the one behind which most of them are, of
// equal ones averaged weights' ("params_ema." beside "params."). Absent where none of them is there.
std::optional<std::string> prefix_of(const NameTable& table, const std::vector<std::string>& names) {
  std::set<std::string_view> sources;
  std::map<std::string, size_t> found;
  for (auto& source : table.sources()) sources.insert(source.name);
  for (const std::string_view name : names)
    for (size_t at = 0; at != name.npos;) {
      if (sources.contains(name.substr(at))) ++found[std::string(name.substr(0, at))];
      const size_t dot = name.find('.', at);
      at = dot == name.npos ? name.npos : dot + 1;
    }
  auto is_average = [](auto& prefix) { return prefix.first.find("ema") != std::string::npos; };
  auto best = std::max_element(found.begin(), found.end(), [&](auto& a, auto& b) {
    return std::pair(a.second, is_average(a)) < std::pair(b.second, is_average(b));
  });
  return best == found.end() ? std::nullopt : std::optional(best->first);
}

// A file of a network that enlarges pictures is that network and no more: ValueError for a tensor that is of no layer.
void check_no_others(const NameTable& table, const std::vector<std::string>& names, const std::string& prefix,
                     const std::string& who) {
  std::set<std::string_view> sources;
  for (auto& source : table.sources()) sources.insert(source.name);
  for (auto& name : names)
    SF_CHECK(!name.starts_with(prefix) || sources.contains(name), who, " has no layer for the tensor '", name, "'");
}

}  // namespace

std::unique_ptr<Model> load_single_model(const std::string& path, const std::string& class_name,
                                         const io::Object& config, const LoadModelOptions& options) {
  const std::shared_ptr<const io::Checkpoint> file = io::with_scales(io::open_checkpoint(path), path);
  const std::vector<std::string> names = file->names();
  std::unique_ptr<Model> model;
  const ModelEntry* entry = find_model(class_name);
  const bool says = entry && entry->config_of_weights && config.items().empty();
  {
    DefaultDevice nowhere{Device(Device::Meta)};
    model = make_model(class_name, says ? entry->config_of_weights(file->entries()) : config);
  }
  std::vector<std::string> layouts = layouts_of(class_name);
  layouts.push_back("own");
  std::optional<NameTable> best;
  std::string before;
  size_t most = 0;
  for (auto& layout : layouts) {
    NameTable table = name_table(*model, class_name, layout);
    const std::optional<std::string> prefix = prefix_of(table, names);
    if (!prefix) continue;
    table.rename_sources([&](const std::string& name) { return *prefix + name; });
    const size_t there = table.sources().size() - table.differences(*file).missing.size();
    if (there > most) most = there, before = *prefix, best.emplace(std::move(table));
  }
  SF_CHECK(best, path, ": has no tensor of a ", class_name, "; it has ", names.size(),
           names.empty() ? "" : " tensors such as '", names.empty() ? "" : names.front(), names.empty() ? "" : "'");
  check_sources(*best, *file, path + ": its " + class_name);
  if (dynamic_cast<UpscalingModel*>(model.get())) check_no_others(*best, names, before, path + ": its " + class_name);
  return load_model(NamedCheckpoint(file, *best, path + ": its " + class_name), std::move(model), options);
}

}  // namespace sf::models
