#include "scaffolding/nn/layer.h"

#include <algorithm>
#include <unordered_map>

#include "scaffolding/nn/closest.h"

namespace sf::nn {

namespace {
std::map<std::string, LayerEntry, std::less<>>& registry() {
  static std::map<std::string, LayerEntry, std::less<>> r;
  return r;
}
}  // namespace

Shape Ints::spread(const char* layer, const char* name, int64_t dims, int64_t least) const {
  SF_CHECK(values.size() == dims || (single && values.size() == 1), layer, ": ", name, " must be one number or ", dims,
           " numbers, got ", values);
  Shape out = values.size() == dims ? values : Shape::filled(dims, values[0]);
  for (int64_t v : out) SF_CHECK(v >= least, layer, ": ", name, " must be at least ", least, ", got ", values);
  return out;
}

LayerEntry& detail::add_layer(const char* name, std::type_index type, std::string_view params,
                              std::span<const sf::detail::ArgType> types,
                              std::unique_ptr<Module> (*make)(std::span<const Value>)) {
  LayerEntry& e = registry()[name];
  SF_CHECK_AS(RuntimeError, e.name.empty(), "SF_LAYER: ", name, " is defined twice");
  e.name = name;
  e.params = params;
  e.type = type;
  e.make = make;
  e.args = sf::detail::parse_params(name, params, types);
  return e;
}

void detail::add_forward(LayerEntry& e, std::string_view params, std::span<const sf::detail::ArgType> types) {
  e.forward_params = params;
  e.forward_args = sf::detail::parse_params(e.name.c_str(), params, types);
}

const std::vector<LayerEntry*>& all_layers() {
  static const std::vector<LayerEntry*> v = [] {
    std::vector<LayerEntry*> out;
    for (auto& [n, e] : registry()) out.push_back(&e);
    return out;
  }();
  return v;
}

const LayerEntry* find_layer(std::string_view name) {
  auto it = registry().find(name);
  return it == registry().end() ? nullptr : &it->second;
}

const LayerEntry* find_layer(const Module& m) {
  static const std::unordered_map<std::type_index, const LayerEntry*> by_type = [] {
    std::unordered_map<std::type_index, const LayerEntry*> out;
    for (const LayerEntry* e : all_layers()) out.emplace(e->type, e);
    return out;
  }();
  auto it = by_type.find(typeid(m));
  return it == by_type.end() ? nullptr : it->second;
}

namespace {
void complete(const std::string& who, const std::vector<ArgInfo>& infos, Values& args) {
  SF_CHECK_AS(TypeError, args.size() <= infos.size(), who, ": takes at most ", infos.size(), " arguments, got ",
              args.size());
  for (size_t i = args.size(); i < infos.size(); ++i) {
    SF_CHECK_AS(TypeError, infos[i].has_default, who, ": missing argument '", infos[i].name, "'");
    args.push_back(infos[i].fallback);
  }
}
}  // namespace

Value call_layer(const LayerEntry& layer, const Module& m, const Values& args) {
  SF_CHECK_AS(NotSupported, layer.call, layer.name, ": has no forward");
  if (args.size() == layer.forward_args.size()) return layer.call(m, args);
  Values all = args;
  complete(layer.name, layer.forward_args, all);
  return layer.call(m, all);
}

std::unique_ptr<Module> make_layer(std::string_view name, Values args) {
  const LayerEntry* layer = find_layer(name);
  if (!layer) {
    std::vector<std::string> names;
    for (auto* e : all_layers()) names.push_back(e->name);
    fail("make_layer: there is no layer '", name, "'", closest_hint(name, names));
  }
  complete(layer->name, layer->args, args);
  return layer->make(args);
}

}  // namespace sf::nn
