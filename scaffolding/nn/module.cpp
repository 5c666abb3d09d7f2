#include "scaffolding/nn/module.h"

#include <algorithm>
#include <unordered_set>

#include "scaffolding/autograd/set_data.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/nn/adapter.h"
#include "scaffolding/nn/closest.h"
#include "scaffolding/nn/joined.h"
#include "scaffolding/nn/layer.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::nn {

Tensor parameter(const Tensor& data, bool requires_grad) {
  check_defined("parameter", "data", data);
  Tensor t = data.detach();
  t.impl()->is_parameter = true;
  if (requires_grad) t.requires_grad_();
  return t;
}

struct Module::Side {
  std::vector<std::pair<uint64_t, ForwardPreHook>> before;
  std::vector<std::pair<uint64_t, ForwardHook>> after;
  uint64_t last_id = 0;
  Extension* extension = nullptr;
  std::function<Module*()> replacement;
  std::shared_ptr<const Adapter> adapter;
  Residence* residence = nullptr;
  uint64_t residence_id = 0;
  // extension->calls(), as of the last change: asking it may need a lock that a call does not hold
  bool intercepted = false;
};

Module::Module() = default;
Module::Module(const Module& o) : training(o.training) {}
Module::Module(Module&& o) noexcept : training(o.training) {}
Module::~Module() = default;

std::string_view Module::next_name(std::string_view& names) {
  auto comma = names.find(',');
  auto name = names.substr(0, comma);
  names.remove_prefix(comma == names.npos ? names.size() : comma + 1);
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  return name;
}

void Module::visit_all(Visitor& v) {
  struct Present : Visitor {
    Visitor& to;
    explicit Present(Visitor& v) : to(v) {}
    void parameter(std::string_view name, const Tensor& t) override { to.parameter(name, t); }
    void buffer(std::string_view name, const Tensor& t, bool persistent) override { to.buffer(name, t, persistent); }
    void module(std::string_view name, Module* m) override { to.module(name, m ? m->present() : m); }
  } present(v);
  visit(present);
  if (side_ && side_->extension) side_->extension->visit(v);
}

thread_local int Descent::depth_ = 0;
Descent::Descent(const Module& m) {
  constexpr int kDeepest = 300;  // people's models stay below 20
  SF_CHECK_AS(RuntimeError, depth_ < kDeepest, m.type(), ": modules are nested ", kDeepest,
              " deep; does one contain itself?");
  ++depth_;
}

void Module::train(bool mode) {
  Descent down(*this);
  training = mode;
  for (auto& child : named_children(*this))
    if (Extension* e = child.module->extension(); !e || !e->train(mode)) child.module->train(mode);
}

// ---- calls and hooks

void Module::extend(Extension* e) {
  if (!side_ && e) side_ = std::make_unique<Side>();
  if (side_) side_->extension = e;
  calls_changed();
}

Extension* Module::extension() const { return side_ ? side_->extension : nullptr; }

void Module::replace_by(std::function<Module*()> m) {
  if (!side_ && m) side_ = std::make_unique<Side>();
  if (side_) side_->replacement = std::move(m);
  calls_changed();
}

Module* Module::present() const {
  if (!side_ || !side_->replacement) return const_cast<Module*>(this);
  Module* m = side_->replacement();
  SF_CHECK_AS(RuntimeError, m, type(), ": what was put in its place is not ready; has its __init__ run?");
  return m;
}

void Module::adapt(std::shared_ptr<const Adapter> adapter) {
  if (!side_ && adapter) side_ = std::make_unique<Side>();
  if (side_) side_->adapter = std::move(adapter);
  calls_changed();
}

std::shared_ptr<const Adapter> Module::adapter() const { return slow_ ? side_->adapter : nullptr; }

void Module::calls_changed() {
  if (!side_) return;
  side_->intercepted = side_->extension && side_->extension->calls();
  slow_ = side_->replacement || side_->intercepted || side_->adapter || side_->residence || !side_->before.empty() ||
          !side_->after.empty();
}

uint64_t Module::register_forward_pre_hook(ForwardPreHook hook) {
  if (!side_) side_ = std::make_unique<Side>();
  if (auto* place = hook.target<detail::ResidenceHook>()) {
    side_->residence = place->residence;
    side_->residence_id = ++side_->last_id;
  } else {
    side_->before.emplace_back(++side_->last_id, std::move(hook));
  }
  calls_changed();
  return side_->last_id;
}

uint64_t Module::register_forward_hook(ForwardHook hook) {
  if (!side_) side_ = std::make_unique<Side>();
  side_->after.emplace_back(++side_->last_id, std::move(hook));
  calls_changed();
  return side_->last_id;
}

void Module::remove_hook(uint64_t id) {
  if (!side_) return;
  std::erase_if(side_->before, [&](auto& h) { return h.first == id; });
  std::erase_if(side_->after, [&](auto& h) { return h.first == id; });
  if (side_->residence_id == id) side_->residence = nullptr;
  calls_changed();
}

bool Module::has_hooks() const { return slow_ && (!side_->before.empty() || !side_->after.empty()); }

Value Module::run_hooks(const Values& given, const std::function<Value(const Values&)>& forward) const {
  auto& self = const_cast<Module&>(*this);
  if (!side_) return forward(given);
  WeightsHere here(side_->residence);
  Values args = given;
  for (auto& [id, hook] : std::vector(side_->before))  // a copy: a hook may remove itself
    if (Values changed = hook(self, args); !changed.empty()) args = std::move(changed);
  Value output;
  if (auto adapter = side_->adapter) {
    auto only_tensor = [&](bool is) {
      SF_CHECK_AS(TypeError, is, type(), ": an adapter is for layers from one tensor to one");
    };
    only_tensor(!args.empty() && std::holds_alternative<Tensor>(args[0]));
    output = adapter->apply(std::get<Tensor>(args[0]), [&] {
      Value bare = forward(args);
      only_tensor(std::holds_alternative<Tensor>(bare));
      return std::get<Tensor>(std::move(bare));
    });
  } else {
    output = forward(args);
  }
  for (auto& [id, hook] : std::vector(side_->after))
    if (Value changed = hook(self, args, output); !std::holds_alternative<std::monostate>(changed))
      output = std::move(changed);
  return output;
}

namespace {
// The calls by C++ callers that are on their way through Python:
// their forward takes arguments that forward_tensors cannot.
struct UnderWay {
  const Module* module;
  const Values* args;
  const std::function<Value(const Values&)>* forward;
  UnderWay* outer;
};
constinit thread_local UnderWay* t_under_way = nullptr;

// An empty list of sizes or numbers comes back from Python as an empty list of tensors.
Values of_the_kinds_of(const Values& sent, Values args) {
  for (size_t i = 0; i < args.size() && i < sent.size(); ++i)
    if (auto* list = std::get_if<Tensors>(&args[i]); list && list->empty()) {
      if (std::holds_alternative<Shape>(sent[i])) args[i] = Shape{};
      else if (std::holds_alternative<Floats>(sent[i])) args[i] = Floats{};
    }
  return args;
}
}  // namespace

Value Module::call_slowly(const Values& args, const std::function<Value(const Values&)>& forward) const {
  if (side_->replacement) return present()->call(args);
  if (!side_->intercepted) {
    try {
      return run_hooks(args, forward);
    } catch (OutOfMemory& e) {
      leaves(e);
      throw;
    }
  }
  struct Scope : UnderWay {
    Scope(const Module* m, const Values* a, const std::function<Value(const Values&)>* f)
        : UnderWay{m, a, f, t_under_way} {
      t_under_way = this;
    }
    ~Scope() { t_under_way = outer; }
  } scope(this, &args, &forward);
  return side_->extension->call(args);
}

void Module::leaves(OutOfMemory& e) const {
  std::string path;
  if (e.module() == this) return;
  if (e.module())
    for (auto& m : named_modules(const_cast<Module&>(*this)))
      if (m.module == e.module()) path = m.name;
  e.leaves(this, path, type());
}

Value Module::call(const Values& args) {
  if (slow_ && side_->replacement) return present()->call(args);
  if (slow_ && side_->intercepted) return side_->extension->call(args);
  return call_native(args);
}

Value Module::call_native(const Values& args) {
  try {
    return run_hooks(args, [this](const Values& v) { return forward_boxed(v); });
  } catch (OutOfMemory& e) {
    leaves(e);
    throw;
  }
}

Value Module::forward_boxed(const Values& args) {
  const LayerEntry* layer = find_layer(*this);
  return layer ? call_layer(*layer, *this, args) : forward_tensors(args);
}

Module::UpToThreeTensors::UpToThreeTensors(const Values& args) {
  if (args.size() > std::size(all)) return;
  for (size_t i = 0; i < args.size(); ++i)
    if (!(all[i] = std::get_if<Tensor>(&args[i]))) return;
  size = args.size();
}
Value Module::forward_tensors(const Values& args) {
  for (const UnderWay* call = t_under_way; call; call = call->outer)
    if (call->module == this) return (*call->forward)(of_the_kinds_of(*call->args, args));
  fail<NotSupported>(type(),
                     ": is not registered as a layer (SF_LAYER), and its forward takes or returns more than tensors: "
                     "it cannot be called without its C++ type");
}

static Value call_in_turn(const std::vector<std::shared_ptr<Module>>& modules, Value x) {
  for (size_t i = 0; i < modules.size(); ++i) {
    const Tensor* tensor = i + 2 < modules.size() ? std::get_if<Tensor>(&x) : nullptr;
    if (Tensor y = tensor ? joined(*tensor, *modules[i], *modules[i + 1], *modules[i + 2]) : Tensor()) {
      x = std::move(y);
      i += 2;
    } else {
      x = modules[i]->call({x});
    }
  }
  return x;
}

Tensor Sequential::operator()(const Tensor& input) const { return call_module(*this, input); }
Tensor Sequential::forward(const Tensor& input) const {
  Value x = call_in_turn(items_, input);
  SF_CHECK_AS(TypeError, std::holds_alternative<Tensor>(x), "Sequential: the last module must return a tensor");
  return std::get<Tensor>(x);
}

Value Sequential::forward_boxed(const Values& args) {
  SF_CHECK_AS(TypeError, args.size() == 1, "Sequential: takes one argument, got ", args.size());
  return call_in_turn(items_, args[0]);
}

void Sequential::visit(Visitor& v) {
  for (size_t i = 0; i < items_.size(); ++i) v.module(std::to_string(i), items_[i].get());
}

// ---- walking

namespace {

struct Children : Visitor {
  std::vector<NamedModule> out;
  Module* parent = nullptr;
  void module(std::string_view name, Module* m) override {
    if (m) out.push_back({std::string(name), m, parent});
  }
};

enum class Kind { Parameters, Buffers };

struct Members : Visitor {
  Kind kind;
  std::string prefix;
  Module* owner;
  std::vector<NamedTensor>& out;
  Members(Kind k, std::string p, Module* m, std::vector<NamedTensor>& o)
      : kind(k), prefix(std::move(p)), owner(m), out(o) {}
  void parameter(std::string_view name, const Tensor& t) override {
    if (kind != Kind::Parameters || !t) return;
    t.impl()->is_parameter = true;
    out.push_back({prefix + std::string(name), t, true, owner});
  }
  void buffer(std::string_view name, const Tensor& t, bool persistent) override {
    if (kind == Kind::Buffers && t) out.push_back({prefix + std::string(name), t, persistent, owner});
  }
};

std::string dotted(const std::string& prefix) { return prefix.empty() ? prefix : prefix + "."; }

void walk(Module& m, const std::string& name, Module* parent, std::unordered_set<Module*>* seen,
          std::vector<NamedModule>& out) {
  Descent down(m);
  if (seen && !seen->insert(&m).second) return;
  out.push_back({name, &m, parent});
  for (auto& child : named_children(m)) walk(*child.module, dotted(name) + child.name, &m, seen, out);
}

std::vector<NamedTensor> members(Module& m, Kind kind, const std::string& prefix, bool recurse, bool remove_duplicate) {
  std::vector<NamedTensor> all;
  auto modules = recurse ? named_modules(m, prefix, remove_duplicate) : std::vector<NamedModule>{{prefix, &m, nullptr}};
  for (auto& [name, module, parent] : modules) {
    Members v(kind, dotted(name), module, all);
    module->visit_all(v);
  }
  if (!remove_duplicate) return all;
  std::unordered_set<TensorImpl*> seen;
  std::erase_if(all, [&](auto& t) { return !seen.insert(t.tensor.impl()).second; });
  return all;
}

}  // namespace

std::vector<NamedModule> named_children(Module& m) {
  Children v;
  v.parent = &m;
  m.visit_all(v);
  return std::move(v.out);
}

std::vector<NamedModule> named_modules(Module& m, const std::string& prefix, bool remove_duplicate) {
  std::vector<NamedModule> out;
  std::unordered_set<Module*> seen;
  walk(m, prefix, nullptr, remove_duplicate ? &seen : nullptr, out);
  return out;
}

std::vector<NamedTensor> named_parameters(Module& m, const std::string& prefix, bool recurse, bool remove_duplicate) {
  return members(m, Kind::Parameters, prefix, recurse, remove_duplicate);
}
std::vector<NamedTensor> named_buffers(Module& m, const std::string& prefix, bool recurse, bool remove_duplicate) {
  return members(m, Kind::Buffers, prefix, recurse, remove_duplicate);
}

namespace {

// In the order of named_parameters(), without the names, which take most of its time.
struct Unnamed {
  bool buffers;
  Tensors out = {};
  std::unordered_set<TensorImpl*> tensors = {};
  std::unordered_set<Module*> modules = {};

  void walk(Module& m) {
    Descent down(m);
    if (!modules.insert(&m).second) return;
    struct One : Visitor {
      Unnamed& all;
      std::vector<Module*> children;
      explicit One(Unnamed& a) : all(a) {}
      void add(const Tensor& t) {
        if (all.tensors.insert(t.impl()).second) all.out.push_back(t);
      }
      void parameter(std::string_view, const Tensor& t) override {
        if (!t) return;
        t.impl()->is_parameter = true;
        add(t);
      }
      void buffer(std::string_view, const Tensor& t, bool) override {
        if (all.buffers && t) add(t);
      }
      void module(std::string_view, Module* child) override {
        if (child) children.push_back(child);
      }
    } one(*this);
    m.visit_all(one);
    for (Module* child : one.children) walk(*child);
  }
};

}  // namespace

Tensors parameters(Module& m) {
  Unnamed all{.buffers = false};
  all.walk(m);
  return std::move(all.out);
}
Tensors parameters_and_buffers(Module& m) {
  Unnamed all{.buffers = true};
  all.walk(m);
  return std::move(all.out);
}

Module& get_submodule(Module& m, std::string_view path) {
  Module* at = &m;
  for (std::string_view rest = path; !rest.empty();) {
    auto dot = rest.find('.');
    std::string_view name = rest.substr(0, dot);
    rest.remove_prefix(dot == rest.npos ? rest.size() : dot + 1);
    auto children = named_children(*at);
    auto found = std::find_if(children.begin(), children.end(), [&](auto& c) { return c.name == name; });
    if (found == children.end()) {
      std::vector<std::string> names;
      for (auto& c : children) names.push_back(c.name);
      fail("get_submodule: ", at->type(), " has no module '", name, "'", closest_hint(name, names));
    }
    at = found->module;
  }
  return *at;
}

// ---- changing all tensors

namespace {

Tensor converted(const Tensor& t, const ToOptions& o, io::UploadRing* ring) {
  Tensor y = t.detach();
  if (ring && t.device().is_cpu()) {
    y = ring->upload(y, o.dtype);
  } else {
    if (o.dtype && t.is_floating_point()) y = y.to(*o.dtype);
    if (o.device && *o.device != t.device()) {
      SF_CHECK_AS(NotSupported, !t.device().is_meta(),
                  "to: tensors on the meta device have no values to move; use to_empty");
      y = y.to(*o.device);
    }
  }
  bool image = t.ndim() == 4 || t.ndim() == 5;
  if (o.memory_format == MemoryFormat::Contiguous || (o.memory_format == MemoryFormat::ChannelsLast && image))
    y = y.contiguous(o.memory_format);
  return y;
}

// For a module's way from the CPU to a GPU, where it is large enough.
std::shared_ptr<io::UploadRing> ring_for(Module& m, const ToOptions& options) {
  if (!options.device || !options.device->is_cuda()) return nullptr;
  size_t bytes = 0;
  for (auto& t : parameters_and_buffers(m)) bytes += t.device().is_cpu() ? t.nbytes() : 0;
  return io::UploadRing::of(*options.device, bytes);
}

}  // namespace

void to(Module& m, const ToOptions& options) {
  SF_CHECK_AS(TypeError, !options.dtype || is_floating(*options.dtype),
              "to: modules convert to floating dtypes only, got ", *options.dtype);
  if (options.device || options.dtype) refuse_streamed(m, "to", options.dtype.has_value());
  autograd::NoGrad no_grad;
  auto ring = ring_for(m, options);
  for (auto& t : parameters_and_buffers(m)) {
    if (Tensor y = converted(t, options, ring.get()); y.storage() != t.storage()) autograd::set_data(t, y);
    if (Tensor g = t.grad()) {
      if (Tensor y = converted(g, options, ring.get()); y.storage() != g.storage()) autograd::set_data(g, y);
    }
  }
  if (ring) ring->finish();  // other streams may use the module from now on
}

void zero_grad(Module& m, bool set_to_none) {
  autograd::NoGrad no_grad;
  for (auto& p : parameters(m)) {
    Tensor g = p.grad();
    if (!g) continue;
    if (set_to_none) p.set_grad({});
    else if (g.requires_grad()) p.set_grad(zeros_like(g));
    else g.zero_();
  }
}

void requires_grad_(Module& m, bool on) {
  for (auto& p : parameters(m)) p.requires_grad_(on);
}

// ---- printing

static std::string indented(const std::string& text) {
  std::string out;
  for (char c : text) {
    out += c;
    if (c == '\n') out += "  ";
  }
  return out;
}

std::string repr(Module& m) { return repr(m, m.is_list()); }

std::string repr(Module& m, bool is_list) {
  struct Children : Visitor {
    std::vector<std::pair<std::string, std::string>> shown;  // name, text
    void module(std::string_view name, Module* child) override {
      shown.emplace_back(name, !child ? "None" : child->extension() ? child->extension()->repr() : repr(*child));
    }
  } children;
  m.visit_all(children);
  std::string lines;
  auto& shown = children.shown;
  for (size_t i = 0; i < shown.size();) {
    size_t n = 1;
    while (is_list && i + n < shown.size() && shown[i + n].second == shown[i].second) ++n;
    std::string line = n == 1 ? "(" + shown[i].first + "): " + shown[i].second
                              : "(" + shown[i].first + "-" + shown[i + n - 1].first + "): " + std::to_string(n) +
                                    " x " + shown[i].second;
    lines += "\n  " + indented(line);
    i += n;
  }
  Extension* e = m.extension();
  std::string type = e ? e->type() : m.type(), extra = e ? e->extra_repr() : m.extra_repr();
  if (lines.empty())
    return type + "(" + (extra.find('\n') == extra.npos ? extra : "\n  " + indented(extra) + "\n") + ")";
  return type + "(" + (extra.empty() ? "" : "\n  " + indented(extra)) + lines + "\n)";
}

}  // namespace sf::nn
