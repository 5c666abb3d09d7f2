// autograd.Function: C++ calls back into Python during backward. The class that users see is in autograd/function.py.
#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "scaffolding/autograd/function.h"

namespace sf::py {

namespace {

using autograd::FunctionContext;

// ctx.saved_tensors looks here while backward runs.
struct SavedTensors {
  FunctionContext* context = nullptr;
};

Tensor optional_tensor(const char* op, nb::handle o) {
  if (!o.is_none() && !is_tensor(o.ptr())) fail<TypeError>(op, ": takes tensors and None, got ", type_name(o.ptr()));
  return o.is_none() ? Tensor() : tensor_of(o.ptr());
}
Tensors tensor_list(const char* op, nb::handle items) {
  Tensors out;
  for (nb::handle o : items) out.push_back(optional_tensor(op, o));
  return out;
}

// One gradient per argument of forward; further Nones are allowed.
Tensors gradients_of(const std::string& name, nb::object result, size_t arguments) {
  if (!PyTuple_Check(result.ptr()) && !PyList_Check(result.ptr())) result = nb::make_tuple(result);
  size_t count = nb::len(result);
  while (count > arguments && nb::object(result[count - 1]).is_none()) --count;
  SF_CHECK_AS(RuntimeError, count == arguments, name, ": backward returned ", count, " gradients for ", arguments,
              " inputs");
  Tensors out;
  for (size_t i = 0; i < count; ++i) {
    nb::object g = result[i];
    if (!g.is_none() && !is_tensor(g.ptr()))
      fail<TypeError>(name, ": backward must return tensors or None, got ", type_name(g.ptr()), " for input ", i);
    out.push_back(g.is_none() ? Tensor() : tensor_of(g.ptr()));
  }
  return out;
}

Tensors call_backward(const std::string& name, const Held& function, const Held& context, size_t arguments,
                      FunctionContext& saved, const Tensors& dys) {
  nb::gil_scoped_acquire gil;
  nb::list args;
  args.append(context.get());
  for (auto& dy : dys) args.append(steal(wrap(dy)));
  nb::object handle = context.get().attr("_saved");
  auto* slot = nb::inst_ptr<SavedTensors>(handle);
  struct Visit {  // nested: a second derivative may run this backward inside itself
    FunctionContext** at;
    FunctionContext* before;
    ~Visit() { *at = before; }
  } visit{&slot->context, std::exchange(slot->context, &saved)};
  return gradients_of(name, steal(PyObject_Call(function.get().attr("backward").ptr(), nb::tuple(args).ptr(), nullptr)),
                      arguments);
}

bool contains(nb::tuple items, nb::handle o) {
  for (nb::handle h : items)
    if (h.is(o)) return true;
  return false;
}

// After forward ran without recording: puts its outputs on the tape. `dirty` inputs, written in place, take their
// output's place on the tape themselves; other inputs that are outputs come back as aliases.
nb::object record(nb::handle function, nb::handle context, nb::tuple args, nb::tuple outputs, nb::tuple dirty) {
  Tensors arguments;
  for (nb::handle a : args) arguments.push_back(is_tensor(a.ptr()) ? tensor_of(a.ptr()) : Tensor());
  autograd::FunctionCall call(arguments);
  FunctionContext& ctx = call.context();
  ctx.save_for_backward(tensor_list("save_for_backward", context.attr("_to_save")));
  ctx.mark_non_differentiable(tensor_list("mark_non_differentiable", context.attr("_non_differentiable")));
  ctx.set_materialize_grads(nb::cast<bool>(context.attr("_materialize_grads")));
  context.attr("_saved") = nb::cast(SavedTensors{});

  std::string name = nb::cast<std::string>(function.attr("__name__")) + "Backward";
  Tensors ys;
  bool recording = autograd::any_requires_grad(arguments);
  for (nb::handle o : outputs) {
    if (!is_tensor(o.ptr())) continue;
    ys.push_back(tensor_of(o.ptr()));
    if (recording && contains(dirty, o)) autograd::check_inplace(name.c_str(), ys.back());
  }
  auto backward = [name, function = Held(function), context = Held(context), count = arguments.size()](
                      FunctionContext& saved, const Tensors& dys) {
    return call_backward(name, function, context, count, saved, dys);
  };
  ys = call.record(name, std::move(ys), backward);

  nb::list results;
  size_t i = 0;
  for (nb::handle o : outputs) {
    if (!is_tensor(o.ptr())) {
      results.append(o);
      continue;
    }
    Tensor y = ys[i++];
    if (contains(dirty, o) && !y.is_same(tensor_of(o.ptr()))) {
      Tensor x = tensor_of(o.ptr());
      x.impl()->grad_fn = y.impl()->grad_fn;
      x.impl()->output_nr = y.impl()->output_nr;
      y = x;
    }
    results.append(steal(wrap(y)));
  }
  return nb::tuple(results);
}

}  // namespace

void bind_function(nb::module_& m) {
  nb::class_<SavedTensors>(m, "_SavedTensors").def("get", [](const SavedTensors& s) {
    SF_CHECK_AS(RuntimeError, s.context, "saved_tensors: can be read in backward only");
    return s.context->saved_tensors();
  });
  m.def("_record_function", &record);
}

}  // namespace sf::py
