#include "scaffolding/train/training_files.h"

#include <algorithm>
#include <cstring>

#include "scaffolding/core/error.h"
#include "scaffolding/core/generator.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/torch_file.h"
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
  SF_CHECK_AS(TypeError, std::holds_alternative<std::monostate>(v),
              "checkpoint: a state holds a value of a kind that cannot be saved");
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
  return dict({{"state", Object::container(Object::Dict, std::move(by_param))},
               {"param_groups", Object::container(Object::List, std::move(groups))}});
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

// Python's schedules that are made of others keep theirs in a list; ours name them "0.last_epoch" and so on.
static constexpr char kParts[] = "_schedulers";

Object to_object(const std::map<std::string, Value>& state) {
  std::vector<std::pair<std::string, Object>> entries;
  std::vector<std::map<std::string, Value>> parts;
  for (auto& [name, v] : state)
    if (size_t dot = name.find('.'); dot != std::string::npos) {
      size_t i = std::stoul(name.substr(0, dot));
      if (parts.size() <= i) parts.resize(i + 1);
      parts[i][name.substr(dot + 1)] = v;
    } else {
      entries.emplace_back(name, to_object(v));
    }
  if (!parts.empty()) {
    std::vector<Object> items;
    for (auto& part : parts) items.push_back(to_object(part));
    entries.emplace_back(kParts, Object::container(Object::List, std::move(items)));
  }
  return dict(std::move(entries));
}

// A schedule written by Python has its options beside what it counts;
// only numbers and lists of them can be a state's here.
static bool is_value(const Object& o) {
  if (o.is_sequence())
    return std::all_of(o.items().begin(), o.items().end(),
                       [](const Object& i) { return i.is(Object::Int) || i.is(Object::Float); });
  return o.is(Object::None) || o.is(Object::Bool) || o.is(Object::Int) || o.is(Object::Float) || o.is(Object::String) ||
         o.is(Object::TensorValue);
}

std::map<std::string, Value> scheduler_state(const Object& o) {
  std::map<std::string, Value> out;
  each(o, [&](const Object& name, const Object& v) {
    if (name.text() == kParts) {
      auto& parts = sequence(v);
      for (size_t i = 0; i < parts.size(); ++i)
        for (auto& [inner, value] : scheduler_state(parts[i])) out[std::to_string(i) + "." + inner] = value;
    } else if (is_value(v)) {
      out[name.text()] = to_value(v);
    }
  });
  return out;
}

static Object bytes_object(const std::vector<uint8_t>& bytes) {
  Tensor t = empty({int64_t(bytes.size())}, kUInt8);
  if (!bytes.empty()) std::memcpy(t.data_ptr(), bytes.data(), bytes.size());
  return t;
}

static std::vector<uint8_t> bytes_of(const Object& o) {
  Tensor t = o.tensor().contiguous();
  SF_CHECK_AS(TypeError, t.dtype() == kUInt8, "checkpoint: a generator's state is bytes, got ", t.dtype());
  return {t.data<uint8_t>(), t.data<uint8_t>() + t.numel()};
}

Object random_states(Device device) {
  std::vector<std::pair<std::string, Object>> entries{{"cpu", bytes_object(default_generator()->get_state())}};
  if (device.is_cuda()) entries.emplace_back("cuda", bytes_object(default_generator(device)->get_state()));
  return dict(std::move(entries));
}

void set_random_states(const Object& o, Device device) {
  default_generator()->set_state(bytes_of(at(o, "cpu")));
  if (device.is_cuda() && o.find("cuda")) default_generator(device)->set_state(bytes_of(at(o, "cuda")));
}

Object to_object(const data::DataLoaderState& s) {
  std::vector<std::pair<std::string, Object>> order;
  if (!s.order_generator.empty()) order.emplace_back("generator_state", bytes_object(s.order_generator));
  bool under_way = s.batches > 0;
  return dict({{"epoch", s.epoch},
               {"batches", s.batches},
               {"base_seed", under_way ? Object(int64_t(s.epoch_seed)) : Object()},
               {"sampler", under_way ? dict({{"sampler", dict(std::move(order))}}) : Object()},
               {"generator", s.generator.empty() ? Object() : bytes_object(s.generator)}});
}

data::DataLoaderState loader_state(const Object& o) {
  data::DataLoaderState s;
  s.epoch = at(o, "epoch").as_int();
  s.batches = at(o, "batches").as_int();
  if (const Object& seed = at(o, "base_seed"); !seed.is(Object::None)) {
    SF_CHECK(
        s.batches > 0,
        "checkpoint: its epoch has begun and has handed out no batch: such a state only Python's DataLoader takes");
    s.epoch_seed = uint64_t(seed.as_int());
  }
  if (const Object& sampler = at(o, "sampler"); !sampler.is(Object::None)) {
    const Object* order = sampler.is_dict() ? sampler.find("sampler") : nullptr;
    SF_CHECK(order && order->is_dict(),
             "checkpoint: its order of samples is of a sampler that only Python has; go on with it there");
    if (const Object* state = order->find("generator_state"); state && !state->is(Object::None))
      s.order_generator = bytes_of(*state);
  }
  if (const Object& generator = at(o, "generator"); !generator.is(Object::None)) s.generator = bytes_of(generator);
  return s;
}

Object to_object(const optim::ScaleState& s, const optim::GradScalerOptions& options) {
  return dict({{"scale", s.scale},
               {"growth_factor", options.growth_factor},
               {"backoff_factor", options.backoff_factor},
               {"growth_interval", options.growth_interval},
               {"_growth_tracker", s.growth_tracker}});
}
optim::ScaleState scaler_state(const Object& o) {
  return {at(o, "scale").as_float(), at(o, "_growth_tracker").as_int()};
}

}  // namespace sf::train
