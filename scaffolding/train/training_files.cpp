#include "scaffolding/train/training_files.h"

#include <cstring>

#include "scaffolding/core/error.h"
#include "scaffolding/io/safetensors.h"
#include "scaffolding/io/torch_file.h"
#include "scaffolding/train/appending_file.h"

namespace sf::train {

using io::Object;

void write_torch(const Object& object, const std::string& path) {
  AppendingFile file(path);
  io::save_torch(object, file);
}

void write_safetensors(const std::map<std::string, Tensor>& tensors, const std::string& path) {
  AppendingFile file(path);
  io::save_safetensors(tensors, file, {{"format", "pt"}});
}

static Object dict(std::vector<std::pair<std::string, Object>> entries) {
  std::vector<Object> items;
  for (auto& [key, value] : entries) {
    items.emplace_back(std::string_view(key));
    items.push_back(std::move(value));
  }
  return Object::container(Object::Dict, std::move(items));
}

static const Object& at(const Object& o, const char* key) {
  const Object* found = o.is_dict() ? o.find(key) : nullptr;
  SF_CHECK(found, "checkpoint: has no '", key, "' where it should");
  return *found;
}

template <class F> static void each(const Object& o, const F& f) {
  SF_CHECK(o.is_dict(), "checkpoint: a dict was expected, got ", Object::name(o.kind()));
  auto& items = o.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) f(items[i], items[i + 1]);
}

static const std::vector<Object>& sequence(const Object& o) {
  SF_CHECK(o.is_sequence(), "checkpoint: a list was expected, got ", Object::name(o.kind()));
  return o.items();
}

static Object to_object(const Value& v) {
  if (auto* b = std::get_if<bool>(&v)) return *b;
  if (auto* i = std::get_if<int64_t>(&v)) return *i;
  if (auto* d = std::get_if<double>(&v)) return *d;
  if (auto* s = std::get_if<std::string>(&v)) return std::string_view(*s);
  if (auto* t = std::get_if<Tensor>(&v)) return *t;
  if (auto* f = std::get_if<Floats>(&v)) {
    std::vector<Object> items;
    for (double d : *f) items.emplace_back(d);
    return Object::container(Object::List, std::move(items));
  }
  SF_CHECK_AS(TypeError, std::holds_alternative<std::monostate>(v), "checkpoint: a state holds a value of a kind that cannot be saved");
  return {};
}

static Value to_value(const Object& o) {
  switch (o.kind()) {
    case Object::None: return {};
    case Object::Bool: return o.as_bool();
    case Object::Int: return o.as_int();
    case Object::Float: return o.as_float();
    case Object::String: return o.text();
    case Object::TensorValue: return o.tensor();
    default: break;
  }
  Floats f;
  for (const Object& item : sequence(o)) f.push_back(item.as_float());
  return f;
}

Object to_object(const optim::StateDict& state) {
  std::vector<Object> by_param, groups;
  for (auto& [id, slots] : state.state) {
    std::vector<std::pair<std::string, Object>> entries;
    for (auto& [name, t] : slots) entries.emplace_back(name, t);
    by_param.emplace_back(id);
    by_param.push_back(dict(std::move(entries)));
  }
  for (auto& g : state.param_groups) {
    std::vector<std::pair<std::string, Object>> entries;
    for (auto& [name, v] : g.options) entries.emplace_back(name, to_object(v));
    std::vector<Object> params;
    for (int64_t id : g.params) params.emplace_back(id);
    entries.emplace_back("params", Object::container(Object::List, std::move(params)));
    groups.push_back(dict(std::move(entries)));
  }
  return dict({{"state", Object::container(Object::Dict, std::move(by_param))}, {"param_groups", Object::container(Object::List, std::move(groups))}});
}

optim::StateDict optimizer_state(const Object& o) {
  optim::StateDict out;
  each(at(o, "state"), [&](const Object& id, const Object& slots) {
    each(slots, [&](const Object& name, const Object& t) { out.state[id.as_int()][name.text()] = t.tensor(); });
  });
  for (const Object& group : sequence(at(o, "param_groups"))) {
    auto& g = out.param_groups.emplace_back();
    each(group, [&](const Object& name, const Object& v) {
      if (name.text() != "params") g.options[name.text()] = to_value(v);
    });
    for (const Object& id : sequence(at(group, "params"))) g.params.push_back(id.as_int());
  }
  return out;
}

Object to_object(const std::map<std::string, Value>& state) {
  std::vector<std::pair<std::string, Object>> entries;
  for (auto& [name, v] : state) entries.emplace_back(name, to_object(v));
  return dict(std::move(entries));
}

std::map<std::string, Value> scheduler_state(const Object& o) {
  std::map<std::string, Value> out;
  each(o, [&](const Object& name, const Object& v) { out[name.text()] = to_value(v); });
  return out;
}

Object to_object(const std::vector<uint8_t>& bytes) {
  Tensor t = empty({int64_t(bytes.size())}, kUInt8);
  if (!bytes.empty()) std::memcpy(t.data_ptr(), bytes.data(), bytes.size());
  return t;
}

std::vector<uint8_t> bytes_of(const Object& o) {
  Tensor t = o.tensor().contiguous();
  return {t.data<uint8_t>(), t.data<uint8_t>() + t.numel()};
}

Object to_object(const data::DataLoaderState& s) {
  return dict({{"epoch", s.epoch},
               {"batches", s.batches},
               {"epoch_seed", int64_t(s.epoch_seed)},
               {"order_generator", to_object(s.order_generator)},
               {"generator", to_object(s.generator)}});
}

data::DataLoaderState loader_state(const Object& o) {
  return {at(o, "epoch").as_int(), at(o, "batches").as_int(), uint64_t(at(o, "epoch_seed").as_int()), bytes_of(at(o, "order_generator")),
          bytes_of(at(o, "generator"))};
}

Object to_object(const optim::ScaleState& s) { return dict({{"scale", s.scale}, {"growth_tracker", s.growth_tracker}}); }
optim::ScaleState scaler_state(const Object& o) { return {at(o, "scale").as_float(), at(o, "growth_tracker").as_int()}; }

}  // namespace sf::train
