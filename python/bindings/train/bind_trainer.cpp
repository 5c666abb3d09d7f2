// TrainingLoop over Python's objects, as _core._train.TrainingRun: every part of the run is reached by its methods, so
// that subclasses, hooks and objects with the same methods take part. The interpreter's lock is held,
// but for what Aside marks.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_generator.h"
#include "python/bindings/nn/bind_nn.h"
#include "python/bindings/train/bind_train.h"
#include "scaffolding/train/native_parts.h"
#include "scaffolding/train/training_loop.h"

namespace sf::py {

namespace {

using namespace train;

// What is looked up at every step, as interned strings.
struct Names {
  static PyObject* of(const char* text) { return checked(PyUnicode_InternFromString(text)); }
  PyObject *model = of("model"), *optimizer = of("optimizer"), *loader = of("loader"), *scheduler = of("scheduler"),
           *scaler = of("_scaler"), *ema = of("ema"), *parameters = of("_parameters"),
           *step_function = of("_step_function"), *prepare = of("_prepare"), *on_step_end = of("_on_step_end"),
           *on_checkpoint = of("_on_checkpoint"), *evaluate = of("_evaluate"), *stateful = of("_stateful"),
           *device = of("_device"), *quiet = of("_quiet"), *save = of("save"),
           *make_capturable = of("_make_capturable"), *step = of("step"), *zero_grad = of("zero_grad"),
           *epoch = of("epoch"), *param_groups = of("param_groups"), *params = of("params"), *lr = of("lr"),
           *found_inf = of("found_inf"), *peers = of("_peers");
};
const Names& names() {
  static const Names n;
  return n;
}

nb::object attribute(nb::handle o, PyObject* name) { return steal(PyObject_GetAttr(o.ptr(), name)); }
nb::object call(nb::handle o, PyObject* method) { return steal(PyObject_CallMethodNoArgs(o.ptr(), method)); }
nb::object call(nb::handle o, PyObject* method, nb::handle argument) {
  return steal(PyObject_CallMethodOneArg(o.ptr(), method, argument.ptr()));
}
std::string class_name(nb::handle o) { return nb::cast<std::string>(o.type().attr("__name__")); }
nb::module_ module(const char* name) { return nb::module_::import_(name); }
constexpr char kTrainer[] = "scaffolding.train.trainer", kNested[] = "scaffolding.train.nested",
               kRandomStates[] = "scaffolding.train.random_states";

// The Trainer in Python, which owns the run. Its attributes are looked up when they are used: the run holds no
// reference that the collector of cycles could not see.
class Owner {
 public:
  explicit Owner(nb::handle trainer) : weak_(steal(PyWeakref_NewRef(trainer.ptr(), nullptr))) {}
  nb::handle trainer() const { return trainer_; }
  nb::object operator[](PyObject* name) const { return attribute(trainer_, name); }
  bool has(PyObject* name) const { return !(*this)[name].is_none(); }

  // f(), while which the Trainer is there.
  template <class F> auto within(const F& f) {
    struct Back {
      Owner& owner;
      nb::object before;
      ~Back() { owner.trainer_ = std::move(before); }
    } back{*this, trainer_};
    trainer_ = weak_();
    SF_CHECK_AS(RuntimeError, !trainer_.is_none(), "Trainer: the run is of a Trainer that is gone");
    try {
      return f();
    } catch (const RuntimeError& e) {
      if (!cause_.is_valid()) throw;
      nb::object cause = std::exchange(cause_, {});
      PyErr_SetObject(cause.type().ptr(), cause.ptr());
      nb::chain_error(PyExc_RuntimeError, "%s", e.what());
      throw nb::python_error();
    }
  }

  // Writes what state() gives by a function of trainer.py.
  template <class F> void write(const char* writer, const F& state, const std::string& path) {
    writing([&] { module(kTrainer).attr(writer)(state(), path); });
  }
  // Errors of Python that say why a file cannot be written are told as C++'s are, and kept.
  template <class F> void writing(const F& f) {
    try {
      f();
    } catch (nb::python_error& e) {
      if (!e.matches(PyExc_RuntimeError) && !e.matches(PyExc_OSError)) throw;
      cause_ = nb::borrow(e.value());
      fail<RuntimeError>(nb::str(e.value()).c_str());
    }
  }

 private:
  nb::object weak_;
  nb::object trainer_;  // during a call
  nb::object cause_;    // of a checkpoint that could not be written
};

void save_state(Owner& owner, nb::handle part, const std::string& path) {
  owner.write(
      "_write_torch", [&] { return part.attr("state_dict")(); }, path);
}
nb::object load_file(const std::string& path) { return module("scaffolding.serialization").attr("load")(path); }

// A part whose file is its state_dict().
template <class Base> class Stated : public Base {
 public:
  Stated(Owner& owner, PyObject* name) : owner_(owner), name_(name) {}
  void save(const std::string& path) const override { save_state(owner_, part(), path); }
  void load(const std::string& path, const RunState&) override { part().attr("load_state_dict")(load_file(path)); }

 protected:
  nb::object part() const { return owner_[name_]; }
  Owner& owner_;

 private:
  PyObject* name_;
};

class PythonModel final : public ModelPart {
 public:
  explicit PythonModel(Owner& owner) : owner_(owner) {}
  nn::Module& module() const override { return module_of(owner_[names().model], "Trainer"); }
  void save(const std::string& path) const override {
    owner_.write(
        "_write_tensors", [&] { return owner_[names().model].attr("state_dict")(); }, path);
  }
  void load(const std::string& path, const RunState&) override {
    owner_[names().model].attr("load_state_dict")(py::module("scaffolding.safetensors").attr("load_file")(path));
  }

 private:
  Owner& owner_;
};

// How many samples a batch holds: the first size of the first tensor in it; 1 where there is none.
int64_t samples_of(nb::object batch) {
  while (true) {
    PyObject *b = batch.ptr(), *first = nullptr;
    Py_ssize_t at = 0;
    if (PyDict_Check(b)) PyDict_Next(b, &at, nullptr, &first);
    else if ((PyList_Check(b) || PyTuple_Check(b)) && PySequence_Fast_GET_SIZE(b) > 0)
      first = PySequence_Fast_GET_ITEM(b, 0);
    if (!first) break;
    batch = nb::borrow(first);
  }
  return is_tensor(batch.ptr()) && tensor_of(batch.ptr()).dim() > 0 ? tensor_of(batch.ptr()).size(0) : 1;
}

class PythonData final : public Stated<DataPart> {
 public:
  PythonData(Owner& owner, Device device) : Stated(owner, names().loader), device_(device) {}
  std::optional<int64_t> size() const override {
    Py_ssize_t n = PyObject_Size(part().ptr());
    if (n >= 0) return n;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw_python_error();
    PyErr_Clear();  // a stream
    return {};
  }
  int64_t epoch() const override { return nb::cast<int64_t>(attribute(part(), names().epoch)); }
  bool next() override {
    batch_.reset();
    if (!batches_.is_valid()) batches_ = steal(PyObject_GetIter(part().ptr()));
    PyObject* batch = PyIter_Next(batches_.ptr());
    if (!batch) {
      if (PyErr_Occurred()) throw_python_error();
      batches_.reset();
      return false;
    }
    batch_ = nb::steal(batch);
    samples_ = samples_of(batch_);
    nb::object prepare = owner_[names().prepare];
    if (!prepare.is_none()) batch_ = prepare(batch_);
    return true;
  }
  int64_t samples() const override { return samples_; }
  Tensor loss() override { return loss_of(std::exchange(batch_, {})); }
  void pause() override {
    batch_.reset();
    nb::object batches = std::exchange(batches_, {}), loader = part(), position = loader.attr("state_dict")();
    batches.reset();
    loader.attr("load_state_dict")(position);  // where fit() would go on
  }
  Inputs inputs() override {
    nb::tuple flat = nb::cast<nb::tuple>(module(kNested).attr("flatten")(std::exchange(batch_, {})));
    nb::object key = flat[1];
    if (!numbers_.contains(key)) {
      numbers_[key] = nb::len(keys_);
      keys_.append(key);
    }
    return {uploaded(nb::cast<Tensors>(flat[0]), device_), nb::cast<int64_t>(numbers_[key])};
  }
  Tensor loss(const Inputs& inputs) override {
    nb::object tensors = steal(wrap_tuple(inputs.tensors));
    return loss_of(module(kNested).attr("rebuild")(nb::iter(tensors), keys_[size_t(inputs.form)]));
  }

 private:
  Tensor loss_of(const nb::object& batch) const {
    nb::object loss = owner_[names().step_function](batch);
    if (!is_tensor(loss.ptr()))
      fail<TypeError>("Trainer: step must return the loss, a tensor of one element that requires a gradient, got ",
                      class_name(loss));
    return tensor_of(loss.ptr());
  }
  Device device_;
  nb::object batches_, batch_;  // during fit()
  int64_t samples_ = 0;
  nb::dict numbers_;  // of the nestings of batches
  nb::list keys_;
};

class PythonOptimizer final : public Stated<OptimizerPart> {
 public:
  explicit PythonOptimizer(Owner& owner) : Stated(owner, names().optimizer) {}
  Tensors params() const override {
    Tensors out;
    for (nb::handle group : attribute(part(), names().param_groups))
      for (nb::handle p : nb::object(group[names().params])) out.push_back(tensor_of(p.ptr()));
    return out;
  }
  void zero_grad() override { call(part(), names().zero_grad); }
  void step() override { call(part(), names().step); }
  Value lr() const override {
    nb::object lr = nb::object(attribute(part(), names().param_groups)[0])[names().lr];
    if (is_tensor(lr.ptr())) return tensor_of(lr.ptr()).detach().clone();
    return nb::cast<double>(nb::float_(lr));
  }
  void make_capturable() override { call(owner_.trainer(), names().make_capturable); }
  void step_unless(const Tensor& found_inf) override {
    struct Flag {
      nb::object optimizer;
      ~Flag() {
        if (PyObject_DelAttr(optimizer.ptr(), names().found_inf) != 0) PyErr_Clear();
      }
    } flag{part()};
    nb::setattr(flag.optimizer, names().found_inf, nb::cast(found_inf));
    step();
  }
};

class PythonSchedule final : public Stated<SchedulePart> {
 public:
  explicit PythonSchedule(Owner& owner) : Stated(owner, names().scheduler) {}
  void step() override { call(part(), names().step); }
};

class PythonScaler final : public Stated<ScalerPart> {
 public:
  explicit PythonScaler(Owner& owner) : Stated(owner, names().scaler) {}
  Tensor scale(const Tensor& loss) override { return nb::cast<Tensor>(part().attr("scale")(loss)); }
  void unscale_() override { part().attr("unscale_")(owner_[names().optimizer]); }
  void also_skip(const Tensor& flag) override { part().attr("_also_skip")(owner_[names().optimizer], flag); }
  void step() override { call(part(), names().step, owner_[names().optimizer]); }
  void update() override { part().attr("update")(); }
  double get_scale() const override { return nb::cast<double>(part().attr("get_scale")()); }
};

class PythonAverages final : public AveragesPart {
 public:
  PythonAverages(Owner& owner, nn::Module& model) : owner_(owner), names_(parameter_names(model)) {}
  size_t size() const override { return nb::len(nb::object(ema().attr("shadow_params"))); }
  int64_t optimization_step() const override { return nb::cast<int64_t>(ema().attr("optimization_step")); }
  void step() override { call(ema(), names().step, parameters()); }
  void store() override { ema().attr("store")(parameters()); }
  void copy_to() override { ema().attr("copy_to")(parameters()); }
  void restore() override { ema().attr("restore")(parameters()); }
  void save(const std::string& path) const override {
    nb::dict averages;
    nb::object shadow = ema().attr("shadow_params");
    for (size_t i = 0; i < names_.size(); ++i) averages[names_[i].c_str()] = shadow[i];
    owner_.write(
        "_write_tensors", [&] { return averages; }, path);
  }
  void load(const std::string& path, const RunState& state) override {
    nb::list shadow;
    for (const Tensor& t : load_named(path, names_, nb::cast<Tensors>(ema().attr("shadow_params")))) shadow.append(t);
    nb::dict saved;
    saved["optimization_step"] = state.ema_step;
    saved["shadow_params"] = shadow;
    ema().attr("load_state_dict")(saved);
  }

 private:
  nb::object ema() const { return owner_[names().ema]; }
  nb::object parameters() const { return owner_[names().parameters]; }
  Owner& owner_;
  std::vector<std::string> names_;
};

class Stateful final : public Part {
 public:
  Stateful(Owner& owner, std::string name) : owner_(owner), name_(std::move(name)) {}
  void save(const std::string& path) const override {
    owner_.write(
        "_write_torch", [&] { return part().attr(is_generator() ? "get_state" : "state_dict")(); }, path);
  }
  void load(const std::string& path, const RunState&) override {
    part().attr(is_generator() ? "set_state" : "load_state_dict")(load_file(path));
  }

 private:
  nb::object part() const { return owner_[names().stateful][name_.c_str()]; }
  bool is_generator() const { return nb::isinstance<PyGenerator>(part()); }
  Owner& owner_;
  std::string name_;
};

class PythonRandom final : public RandomPart {
 public:
  explicit PythonRandom(Owner& owner) : owner_(owner) {}
  bool restore() override {
    if (!kept_.is_valid()) return false;
    module(kRandomStates).attr("set")(std::exchange(kept_, {}), owner_[names().device]);
    return true;
  }
  void save(const std::string& path) const override {
    owner_.write(
        "_write_torch", [&] { return module(kRandomStates).attr("get")(owner_[names().device]); }, path);
  }
  void load(const std::string& path, const RunState&) override { kept_ = load_file(path); }

 private:
  Owner& owner_;
  nb::object kept_;
};

class PythonHost final : public Host {
 public:
  explicit PythonHost(Owner& owner) : owner_(owner) {}
  Progress progress() const override {
    if (quiet()) return Progress::Quiet;
    return nb::cast<bool>(module("sys").attr("stderr").attr("isatty")()) ? Progress::Terminal : Progress::Lines;
  }
  void show(const std::string& text) override {
    if (text.empty() || quiet()) return;
    nb::object out = module("sys").attr("stderr");
    out.attr("write")(text);
    out.attr("flush")();
  }
  void warn(const std::string& text) override {
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 2) != 0) throw_python_error();
  }
  bool interrupted() override {
    if (PyErr_CheckSignals() != 0) throw_python_error();
    return false;  // trainer.py asks to stop()
  }
  void* leave() override { return PyEval_SaveThread(); }
  void come_back(void* left) override { PyEval_RestoreThread(static_cast<PyThreadState*>(left)); }

 private:
  bool quiet() const { return PyObject_IsTrue(owner_[names().quiet].ptr()) == 1; }
  Owner& owner_;
};

// The other processes of a DistributedDataParallel: scaffolding/train/peers.py.
class PythonPeers final : public PeersPart {
 public:
  explicit PythonPeers(Owner& owner) : owner_(owner) {}
  bool leads() const override { return nb::cast<bool>(peers().attr("leads")); }
  void begin() override { peers().attr("begin")(); }
  void before(int64_t i, int64_t count) override { peers().attr("before")(i, count); }
  void after(bool whole) override { peers().attr("after")(whole); }
  bool means_gradients() const override { return nb::cast<bool>(peers().attr("means_gradients")); }
  std::pair<double, bool> agree(double loss, bool stop) override {
    nb::tuple both = nb::cast<nb::tuple>(peers().attr("agree")(loss, stop));
    return {nb::cast<double>(both[0]), nb::cast<bool>(both[1])};
  }
  void save(const std::string& folder, const std::string& text) override {
    owner_.writing([&] { peers().attr("save")(folder, text); });
  }
  Found load(const std::string& output_dir, const std::vector<int64_t>& steps, const std::string& resume) override {
    nb::tuple found = nb::cast<nb::tuple>(peers().attr("load")(output_dir, steps, resume));
    return {nb::cast<std::string>(found[0]), nb::cast<std::string>(found[1]),
            nb::cast<std::vector<std::string>>(found[2])};
  }

 private:
  nb::object peers() const { return owner_[names().peers]; }
  Owner& owner_;
};

std::map<std::string, double> numbers_of(nb::handle result) {
  if (!PyDict_Check(result.ptr()))
    fail<TypeError>("Trainer: evaluate must return a dict of numbers, got ", class_name(result));
  std::map<std::string, double> out;
  for (auto [name, value] : nb::borrow<nb::dict>(result))
    out[nb::str(name).c_str()] = nb::cast<double>(nb::float_(value));
  return out;
}

nb::dict best_of(const RunState& s) {
  nb::dict out;
  for (auto& [name, e] : s.best) {
    nb::dict extremes;
    extremes["lowest"] = e.lowest;
    extremes["lowest_step"] = e.lowest_step;
    extremes["highest"] = e.highest;
    extremes["highest_step"] = e.highest_step;
    out[name.c_str()] = extremes;
  }
  return out;
}

// A TrainingLoop of the attributes of a Trainer.
class TrainingRun {
 public:
  TrainingRun(nb::handle trainer, const RunOptions& run, std::optional<uint64_t> seed, const std::string& resume,
              bool cuda_graph)
      : owner_(trainer) {
    owner_.within([&] {
      LoopOptions o{.run = run, .seed = seed, .resume = resume, .cuda_graph = cuda_graph};
      if (owner_.has(names().evaluate)) o.evaluate = [this] { return numbers_of(owner_[names().evaluate]()); };
      if (owner_.has(names().on_step_end)) o.on_step_end = [this] { owner_[names().on_step_end](owner_.trainer()); };
      if (owner_.has(names().on_checkpoint))
        o.on_checkpoint = [this](const std::string& folder) {
          owner_[names().on_checkpoint](owner_.trainer(), folder);
        };
      o.save = [this] { call(owner_.trainer(), names().save); };
      loop_.emplace(parts(), std::move(o));
    });
  }
  TrainingLoop& loop() { return *loop_; }
  template <class F> auto within(const F& f) {
    return owner_.within([&] { return f(*loop_); });
  }

 private:
  Parts parts() {
    Parts parts;
    auto model = std::make_unique<PythonModel>(owner_);
    Tensors parameters = nn::parameters(model->module());
    parts.data = std::make_unique<PythonData>(owner_, parameters.empty() ? Device() : parameters[0].device());
    parts.optimizer = std::make_unique<PythonOptimizer>(owner_);
    if (owner_.has(names().scheduler)) parts.scheduler = std::make_unique<PythonSchedule>(owner_);
    if (owner_.has(names().scaler)) parts.scaler = std::make_unique<PythonScaler>(owner_);
    if (owner_.has(names().ema)) parts.ema = std::make_unique<PythonAverages>(owner_, model->module());
    for (nb::handle name : owner_[names().stateful])
      parts.stateful.emplace_back(nb::cast<std::string>(name),
                                  std::make_unique<Stateful>(owner_, nb::cast<std::string>(name)));
    parts.random = std::make_unique<PythonRandom>(owner_);
    parts.host = std::make_unique<PythonHost>(owner_);
    if (owner_.has(names().peers)) parts.peers = std::make_unique<PythonPeers>(owner_);
    parts.model = std::move(model);
    return parts;
  }
  Owner owner_;
  std::optional<TrainingLoop> loop_;
};

}  // namespace

void bind_trainer(nb::module_& m) {
  nb::class_<TrainingRun>(m, "TrainingRun")
      .def(nb::init<nb::handle, const RunOptions&, std::optional<uint64_t>, const std::string&, bool>(),
           nb::arg("trainer"), nb::arg("options"), nb::arg("seed").none(), nb::arg("resume"), nb::arg("cuda_graph"))
      .def("fit",
           [](TrainingRun& r) {
             FitResult f = r.within([](TrainingLoop& loop) { return loop.fit(); });
             return nb::make_tuple(f.stopped, f.step, f.epoch, f.loss,
                                   f.checkpoint.empty() ? nb::object(nb::none()) : nb::object(nb::cast(f.checkpoint)));
           })
      .def("stop", [](TrainingRun& r) { r.loop().stop(); })
      .def("save", [](TrainingRun& r) { return r.within([](TrainingLoop& loop) { return loop.save(); }); })
      .def("loss", [](TrainingRun& r) { return r.within([](TrainingLoop& loop) { return loop.loss(); }); })
      .def("graphs",
           [](TrainingRun& r) {
             nb::list out;
             for (auto& s : r.loop().graphs()) {
               nb::dict counts;
               counts["eager"] = s.eager, counts["captures"] = s.captures, counts["replays"] = s.replays,
               counts["kept"] = s.kept;
               out.append(counts);
             }
             return out;
           })
      .def_prop_ro("step", [](TrainingRun& r) { return r.loop().state().step; })
      .def_prop_ro("epoch", [](TrainingRun& r) { return r.loop().state().epoch; })
      .def_prop_ro("best", [](TrainingRun& r) { return best_of(r.loop().state()); })
      .def_prop_ro("tensorboard", [](TrainingRun& r) { return r.loop().tensorboard(); });
}

}  // namespace sf::py
