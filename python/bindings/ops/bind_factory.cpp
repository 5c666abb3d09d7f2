// Factories: zeros(2, 3), zeros((2, 3)), zeros(size=(2, 3)), each with dtype= device= requires_grad= generator=.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/copy/pinned.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::py {

namespace {

// What the documents of all factories say of their options.
#define SF_DTYPE_DEVICE_GRAD                                                                        \
  "    dtype: of the elements; None: what the text or input says, else the default one of floats\n" \
  "    device: where it lies; None: input's, or the default one\n"                                  \
  "    requires_grad: whether gradients are recorded for it"
#define SF_OPTIONS "\n\nArgs:\n" SF_DTYPE_DEVICE_GRAD
#define SF_RANDOM \
  "\n\nArgs:\n    generator: where random numbers come from; None: the default one\n" SF_DTYPE_DEVICE_GRAD
#define SF_FORMAT "\n    memory_format: contiguous_format, or channels_last of four dimensions"

// The keywords that factories share. What is left over in `others` belongs to one factory.
struct Options {
  std::optional<DType> dtype;
  std::optional<Device> device;
  bool requires_grad = false, pinned = false;
  Generator generator;
  MemoryFormat format = MemoryFormat::Preserve;
  nb::dict others;
};

Options read_options(const std::string& op, nb::kwargs kwargs) {
  Options o;
  for (auto [key, value] : kwargs) {
    std::string name = nb::cast<std::string>(key);
    PyObject* v = value.ptr();
    if (name == "dtype") {
      DType t;
      if (v != Py_None && !to_dtype(v, t)) wrong_argument(op, name, "a dtype", v);
      if (v != Py_None) o.dtype = t;
    } else if (name == "device") {
      Device d;
      if (v != Py_None && !to_device(v, d)) wrong_argument(op, name, "a device", v);
      if (v != Py_None) o.device = d;
    } else if (name == "requires_grad") {
      if (!PyBool_Check(v)) wrong_argument(op, name, "a bool", v);
      o.requires_grad = v == Py_True;
    } else if (name == "generator") {
      if (v != Py_None && !to_generator(v, o.generator)) wrong_argument(op, name, "a generator", v);
    } else if (name == "memory_format") {
      if (v != Py_None && !to_memory_format(v, o.format)) wrong_argument(op, name, "a memory format", v);
    } else if (name == "pin_memory") {
      if (!PyBool_Check(v)) wrong_argument(op, name, "a bool", v);
      o.pinned = v == Py_True;
    } else if (name == "layout") {
      continue;  // strided is the only one
    } else {
      o.others[key] = value;
    }
  }
  return o;
}

// Positional arguments and leftover keywords, by name and in order.
class Given {
 public:
  Given(const char* op, std::initializer_list<const char*> names, nb::args args, const nb::dict& others)
      : op_(op), names_(names.begin(), names.end()), values_(names.size()) {
    SF_CHECK_AS(TypeError, args.size() <= names_.size(), op, ": takes at most ", names_.size(),
                " positional arguments, got ", args.size());
    for (size_t i = 0; i < args.size(); ++i) values_[i] = args[i];
    for (auto [key, value] : others) {
      std::string name = nb::cast<std::string>(key);
      auto at = std::find(names_.begin(), names_.end(), name);
      SF_CHECK_AS(TypeError, at != names_.end(), op, ": has no argument '", name, "'");
      nb::object& slot = values_[size_t(at - names_.begin())];
      SF_CHECK_AS(TypeError, !slot.is_valid(), op, ": argument '", name, "' is given twice");
      slot = nb::borrow(value);
    }
  }
  bool has(size_t i) const { return values_[i].is_valid() && !values_[i].is_none(); }
  PyObject* at(size_t i) const {
    SF_CHECK_AS(TypeError, values_[i].is_valid(), op_, ": missing argument '", names_[i], "'");
    return values_[i].ptr();
  }
  Scalar scalar(size_t i) const {
    Scalar s;
    if (!to_scalar(at(i), s)) wrong_argument(op_, names_[i], "a number", at(i));
    return s;
  }
  int64_t integer(size_t i) const {
    int64_t v;
    if (!to_int(at(i), v)) wrong_argument(op_, names_[i], "an integer", at(i));
    return v;
  }
  Shape shape(size_t i) const {
    Shape s;
    if (!to_shape(at(i), s)) wrong_argument(op_, names_[i], "integers", at(i));
    return s;
  }
  Tensor tensor(size_t i) const {
    if (!is_tensor(at(i))) wrong_argument(op_, names_[i], "a tensor", at(i));
    return tensor_of(at(i));
  }

 private:
  const char* op_;
  std::vector<std::string> names_;
  std::vector<nb::object> values_;
};

// zeros(2, 3) or zeros((2, 3)) or zeros(size=(2, 3)).
Shape read_size(const char* op, nb::args args, const Options& o) {
  if (args.size() > 1) {
    Shape s;
    if (!to_shape(args.ptr(), s)) wrong_argument(op, "size", "integers", args.ptr());
    Given(op, {}, nb::borrow<nb::args>(nb::tuple()), o.others);
    return s;
  }
  return Given(op, {"size"}, args, o.others).shape(0);
}

Tensor finish(Tensor t, const Options& o) {
  if (o.format == MemoryFormat::ChannelsLast) t = t.contiguous(o.format);
  if (o.pinned) t = pin_memory(t);
  return o.requires_grad ? t.requires_grad_() : t;
}

template <class T> Value optional_value(const std::optional<T>& v) { return v ? Value(*v) : Value(std::monostate{}); }
Value generator_value(const Generator& g) { return g ? Value(g) : Value(std::monostate{}); }

// A random op of the registry; op arguments first, then generator, dtype, device.
Tensor random_op(const char* op, std::vector<Value> arguments, const Options& o, int64_t count, bool like = false) {
  arguments.push_back(generator_value(o.generator));
  arguments.push_back(optional_value(o.dtype));
  if (!like) arguments.push_back(optional_value(o.device));
  Tensor t;
  {
    MaybeRelease release(count > kReleaseAbove);
    t = std::get<Tensor>(call_op(op, std::move(arguments)));
  }
  if (like && o.device) t = to_device(t, *o.device);
  return finish(t, o);
}

int64_t count_of(const Shape& s) {
  int64_t n = 1;
  for (auto d : s) n = d > 0 && n < kReleaseAbove ? n * std::min(d, kReleaseAbove + 1) : n;
  return n;
}

void bind_sized(nb::module_& m) {
  using Make = Tensor (*)(const Shape&, const Options&);
  auto add = [&m](const char* name, const char* doc, Make make) {
    m.def(
        name,
        [name, make](nb::args args, nb::kwargs kwargs) {
          Options o = read_options(name, kwargs);
          Shape size = read_size(name, args, o);
          return finish(make(size, o), o);
        },
        doc);
  };
  add("zeros",
      "zeros(*size, dtype=None, device=None, requires_grad=False)\n\nA tensor of zeros." SF_OPTIONS
      "\n\n>>> sf.zeros(3)\n"
      "tensor([0., 0., 0.])",
      [](const Shape& s, const Options& o) { return zeros(s, o.dtype, o.device); });
  add("ones",
      "ones(*size, dtype=None, device=None, requires_grad=False)\n\nA tensor of ones." SF_OPTIONS
      "\n\n>>> sf.ones(3)\n"
      "tensor([1., 1., 1.])",
      [](const Shape& s, const Options& o) { return ones(s, o.dtype, o.device); });
  add("empty",
      "empty(*size, dtype=None, device=None, requires_grad=False, pin_memory=False, memory_format=None)\n\nA tensor "
      "whose values are not set." SF_OPTIONS "\n    pin_memory: whether it lies in pinned host memory" SF_FORMAT
      "\n\n>>> sf.empty(2, 3).shape\n"
      "scaffolding.Size([2, 3])",
      [](const Shape& s, const Options& o) {
        return o.pinned && !o.device ? empty_pinned(s, o.dtype) : empty(s, o.dtype, o.device);
      });
  add("rand",
      "rand(*size, generator=None, dtype=None, device=None, requires_grad=False)\n\nUniform numbers of [0, "
      "1)." SF_RANDOM
      "\n\n>>> g = sf.Generator().manual_seed(0)\n"
      ">>> sf.rand(2, 2, generator=g)\n"
      "tensor([[0.4963, 0.7682],\n"
      "        [0.0885, 0.1320]])",
      [](const Shape& s, const Options& o) { return random_op("rand", {s}, o, count_of(s)); });
  add("randn",
      "randn(*size, generator=None, dtype=None, device=None, requires_grad=False)\n\nNormal numbers of mean 0 and "
      "deviation 1." SF_RANDOM
      "\n\n>>> g = sf.Generator().manual_seed(0)\n"
      ">>> sf.randn(3, generator=g)\n"
      "tensor([ 1.5410, -0.2934, -2.1788])",
      [](const Shape& s, const Options& o) { return random_op("randn", {s}, o, count_of(s)); });
}

void bind_valued(nb::module_& m) {
  m.def(
      "full",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("full", kwargs);
        Given g("full", {"size", "fill_value"}, args, o.others);
        return finish(full(g.shape(0), g.scalar(1), o.dtype, o.device), o);
      },
      "full(size, fill_value, *, dtype=None, device=None, requires_grad=False)\n\nA tensor of this size with "
      "fill_value everywhere." SF_OPTIONS
      "\n\n>>> sf.full((2, 2), 7.)\n"
      "tensor([[7., 7.],\n"
      "        [7., 7.]])");
  m.def(
      "arange",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("arange", kwargs);
        if (args.size() == 1 && !o.others.contains("end"))
          return finish(
              arange(0, Given("arange", {"end", "step", "start"}, args, o.others).scalar(0), 1, o.dtype, o.device), o);
        Given g("arange", {"start", "end", "step"}, args, o.others);
        return finish(arange(g.has(0) ? g.scalar(0) : Scalar(0), g.scalar(1), g.has(2) ? g.scalar(2) : Scalar(1),
                             o.dtype, o.device),
                      o);
      },
      "arange(start=0, end, step=1, *, dtype=None, device=None, requires_grad=False)\n\n[start, end) in steps; int64 "
      "when all three are integers." SF_OPTIONS
      "\n\n>>> sf.arange(1, 2.5, 0.5)\n"
      "tensor([1.0000, 1.5000, 2.0000])");
  m.def(
      "linspace",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("linspace", kwargs);
        Given g("linspace", {"start", "end", "steps"}, args, o.others);
        return finish(linspace(g.scalar(0), g.scalar(1), g.integer(2), o.dtype, o.device), o);
      },
      "linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False)\n\nsteps numbers from start to "
      "end, both included." SF_OPTIONS
      "\n\n>>> sf.linspace(0, 1, 5)\n"
      "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])");
  m.def(
      "eye",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("eye", kwargs);
        Given g("eye", {"n", "m"}, args, o.others);
        return finish(eye(g.integer(0), g.has(1) ? std::optional(g.integer(1)) : std::nullopt, o.dtype, o.device), o);
      },
      "eye(n, m=None, *, dtype=None, device=None, requires_grad=False)\n\nA matrix [n, m] (m None: n) of ones on the "
      "diagonal, zeros elsewhere." SF_OPTIONS
      "\n\n>>> sf.eye(2, 3)\n"
      "tensor([[1., 0., 0.],\n"
      "        [0., 1., 0.]])");
  m.def(
      "empty_strided",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("empty_strided", kwargs);
        Given g("empty_strided", {"size", "stride"}, args, o.others);
        return finish(
            empty_strided(g.shape(0), g.shape(1), o.dtype.value_or(default_dtype()), o.device.value_or(Device())), o);
      },
      "empty_strided(size, stride, *, dtype=None, device=None, requires_grad=False)\n\nA tensor of this size and "
      "stride whose values are not set." SF_OPTIONS
      "\n\n>>> sf.empty_strided((2, 3), (1, 2)).stride()\n"
      "(1, 2)");
  m.def(
      "scalar_tensor",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("scalar_tensor", kwargs);
        return finish(scalar_tensor(Given("scalar_tensor", {"s"}, args, o.others).scalar(0),
                                    o.dtype.value_or(default_dtype()), o.device),
                      o);
      },
      "scalar_tensor(s, *, dtype=None, device=None, requires_grad=False)\n\nA 0-d tensor of the number s." SF_OPTIONS
      "\n\n>>> sf.scalar_tensor(2.5)\n"
      "tensor(2.5000)");
}

void bind_random(nb::module_& m) {
  m.def(
      "randint",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("randint", kwargs);
        bool from_zero = args.size() == 2 ? !o.others.contains("size") : args.size() < 2 && !o.others.contains("low");
        if (from_zero) {
          Given g("randint", {"high", "size"}, args, o.others);
          return random_op("randint", {int64_t(0), g.integer(0), g.shape(1)}, o, count_of(g.shape(1)));
        }
        Given g("randint", {"low", "high", "size"}, args, o.others);
        return random_op("randint", {g.integer(0), g.integer(1), g.shape(2)}, o, count_of(g.shape(2)));
      },
      "randint(low=0, high, size, *, generator=None, dtype=int64, device=None, requires_grad=False)\n\nIntegers of "
      "[low, high)." SF_RANDOM
      "\n\n>>> g = sf.Generator().manual_seed(0)\n"
      ">>> sf.randint(0, 10, (4,), generator=g)\n"
      "tensor([4, 9, 3, 0])");
  m.def(
      "randperm",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("randperm", kwargs);
        int64_t n = Given("randperm", {"n"}, args, o.others).integer(0);
        return random_op("randperm", {n}, o, n);
      },
      "randperm(n, *, generator=None, dtype=int64, device=None, requires_grad=False)\n\n0 .. n-1 in random "
      "order." SF_RANDOM
      "\n\n>>> g = sf.Generator().manual_seed(0)\n"
      ">>> sf.randperm(4, generator=g)\n"
      "tensor([0, 1, 3, 2])");
}

void bind_like(nb::module_& m) {
  // In input's layout unless a memory format is given.
  auto add_filled = [&m](const char* name, const char* doc, bool valued, Scalar value) {
    m.def(
        name,
        [=](nb::args args, nb::kwargs kwargs) {
          Options o = read_options(name, kwargs);
          Given g =
              valued ? Given(name, {"input", "fill_value"}, args, o.others) : Given(name, {"input"}, args, o.others);
          Tensor x = g.tensor(0),
                 t = o.device ? empty_like(empty_strided(x.shape(), x.strides(), x.dtype(), Device::Meta), o.dtype)
                              : Tensor();
          t = o.device ? empty_strided(t.shape(), t.strides(), t.dtype(), *o.device) : empty_like(x, o.dtype);
          if (o.format == MemoryFormat::Contiguous && !t.is_contiguous()) t = empty(t.shape(), t.dtype(), t.device());
          t.fill_(valued ? g.scalar(1) : value);
          return finish(t, o);
        },
        doc);
  };
  add_filled("zeros_like",
             "zeros_like(input, *, dtype=None, device=None, requires_grad=False, memory_format=None)\n\nZeros in "
             "input's shape and layout." SF_OPTIONS SF_FORMAT
             "\n\n>>> sf.zeros_like(sf.ones(3))\n"
             "tensor([0., 0., 0.])",
             false, 0);
  add_filled("ones_like",
             "ones_like(input, *, dtype=None, device=None, requires_grad=False, memory_format=None)\n\nOnes in input's "
             "shape and layout." SF_OPTIONS SF_FORMAT
             "\n\n>>> sf.ones_like(sf.zeros(3))\n"
             "tensor([1., 1., 1.])",
             false, 1);
  add_filled("full_like",
             "full_like(input, fill_value, *, dtype=None, device=None, requires_grad=False)\n\nfill_value in input's "
             "shape and layout." SF_OPTIONS
             "\n\n>>> sf.full_like(sf.zeros(3), 7)\n"
             "tensor([7., 7., 7.])",
             true, 0);
  add_filled("empty_like",
             "empty_like(input, *, dtype=None, device=None, requires_grad=False)\n\nA tensor in input's shape and "
             "layout." SF_OPTIONS
             "\n\n>>> sf.empty_like(sf.zeros(2, 3, dtype=sf.int64)).dtype\n"
             "scaffolding.int64",
             false, 0);
  for (const char* name : {"rand_like", "randn_like"})
    m.def(
        name,
        [name](nb::args args, nb::kwargs kwargs) {
          Options o = read_options(name, kwargs);
          Tensor x = Given(name, {"input"}, args, o.others).tensor(0);
          return random_op(name, {x}, o, x.numel(), true);
        },
        "Random numbers in input's shape and layout; as rand and randn."
        "\n\n>>> x = sf.zeros(2, 3)\n"
        ">>> sf.rand_like(x).shape, sf.randn_like(x).shape\n"
        "(scaffolding.Size([2, 3]), scaffolding.Size([2, 3]))");
  m.def(
      "randint_like",
      [](nb::args args, nb::kwargs kwargs) {
        Options o = read_options("randint_like", kwargs);
        if (args.size() == 2 && !o.others.contains("high")) {
          Given g("randint_like", {"input", "high"}, args, o.others);
          return random_op("randint_like", {g.tensor(0), int64_t(0), g.integer(1)}, o, g.tensor(0).numel(), true);
        }
        Given g("randint_like", {"input", "low", "high"}, args, o.others);
        return random_op("randint_like", {g.tensor(0), g.integer(1), g.integer(2)}, o, g.tensor(0).numel(), true);
      },
      "randint_like(input, low=0, high, *, dtype=None, device=None)\n\nIntegers of [low, high) in input's shape and "
      "layout." SF_OPTIONS
      "\n\n>>> sf.randint_like(sf.zeros(2, 3), 10).shape\n"
      "scaffolding.Size([2, 3])");
}

}  // namespace

void bind_factory(nb::module_& m) {
  bind_sized(m);
  bind_valued(m);
  bind_random(m);
  bind_like(m);
}

}  // namespace sf::py
