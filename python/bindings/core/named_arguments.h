// The arguments of a call from Python by the names of its parameters,
// for functions whose parameters are known at run time only.
// Needs the GIL.
#pragma once
#include <algorithm>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/bind_generator.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::py {

// "a, b" as a list.
inline std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> out;
  for (size_t at = 0; at < list.size();) {
    size_t end = std::min(list.find(", ", at), list.size());
    out.emplace_back(list.substr(at, end - at));
    at = end + 2;
  }
  return out;
}

// A call's arguments by the names of its parameters; TypeError for what fits none.
class [[gnu::visibility("hidden")]] NamedArguments {
 public:
  NamedArguments(std::string function, std::vector<std::string> parameters, const nb::args& args,
                 const nb::kwargs& kwargs)
      : function_(std::move(function)), parameters_(std::move(parameters)), given_(parameters_.size()) {
    if (args.size() > parameters_.size())
      fail<TypeError>(function_, ": takes at most ", parameters_.size(), " arguments, got ", args.size());
    for (size_t i = 0; i < args.size(); ++i) given_[i] = nb::borrow(args[i]);
    read(kwargs);
  }
  NamedArguments(std::string function, std::vector<std::string> parameters, const nb::dict& given)
      : function_(std::move(function)), parameters_(std::move(parameters)), given_(parameters_.size()) {
    read(given);
  }
  // Absent and None: null.
  nb::handle get(const char* name) const {
    size_t i = place(name);
    if (i == parameters_.size() || !given_[i].is_valid() || given_[i].is_none()) return {};
    return given_[i];
  }
  double number(const char* name, double otherwise) const {
    nb::handle o = get(name);
    return o.is_valid() ? number_of(name, o) : otherwise;
  }
  bool boolean(const char* name, bool otherwise) const {
    nb::handle o = get(name);
    if (!o.is_valid()) return otherwise;
    if (!PyBool_Check(o.ptr())) wrong_argument(function_, name, "a bool", o.ptr());
    return o.ptr() == Py_True;
  }
  std::optional<int64_t> integer(const char* name) const {
    nb::handle o = get(name);
    if (!o.is_valid()) return {};
    int64_t v = 0;
    if (!to_int(o.ptr(), v)) wrong_argument(function_, name, "an integer", o.ptr());
    return v;
  }
  Tensor tensor(const char* name) const {
    nb::handle o = get(name);
    if (!o.is_valid()) return {};
    if (!is_tensor(o.ptr())) wrong_argument(function_, name, "a tensor", o.ptr());
    return tensor_of(o.ptr());
  }
  // A list, a tuple, an array or a tensor of numbers.
  std::optional<std::vector<double>> numbers(const char* name) const {
    nb::handle o = get(name);
    if (!o.is_valid()) return {};
    nb::object list = nb::hasattr(o, "tolist") ? o.attr("tolist")() : nb::borrow(o);
    if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr()))
      wrong_argument(function_, name, "a list of numbers", o.ptr());
    std::vector<double> out;
    for (nb::handle item : list) out.push_back(number_of(name, item));
    return out;
  }
  diffusion::Generators generators(const char* name) const {
    nb::handle o = get(name);
    diffusion::Generators out;
    if (!o.is_valid()) return out;
    bool list = PyList_Check(o.ptr()) || PyTuple_Check(o.ptr());
    auto add = [&](nb::handle g) {
      if (!to_generator(g.ptr(), out.emplace_back()))
        wrong_argument(function_, name, "a Generator or a list of them", g.ptr());
    };
    if (!list) add(o);
    else
      for (nb::handle g : o) add(g);
    return out;
  }
  // A str or a list of them.
  std::vector<std::string> texts(const char* name) const {
    nb::handle o = get(name);
    std::vector<std::string> out;
    if (!o.is_valid()) return out;
    auto add = [&](nb::handle text) {
      Py_ssize_t n = 0;
      if (!PyUnicode_Check(text.ptr())) wrong_argument(function_, name, "a str or a list of them", text.ptr());
      // UnicodeEncodeError, a ValueError, for half of a surrogate pair
      const char* s = PyUnicode_AsUTF8AndSize(text.ptr(), &n);
      if (!s) throw_python_error();
      out.emplace_back(s, size_t(n));
    };
    if (!PyList_Check(o.ptr()) && !PyTuple_Check(o.ptr())) add(o);
    else
      for (nb::handle text : o) add(text);
    return out;
  }
  double number_of(const char* name, nb::handle o) const {
    Scalar s;
    if (!to_scalar(o.ptr(), s)) wrong_argument(function_, name, "a number", o.ptr());
    return s.to_double();
  }

 private:
  void read(const nb::dict& keywords) {
    for (auto [key, value] : keywords) {
      auto name = nb::cast<std::string>(key);
      size_t i = place(name);
      if (i == parameters_.size()) fail<TypeError>(function_, ": unexpected keyword argument '", name, "'");
      if (given_[i].is_valid()) fail<TypeError>(function_, ": got several values for '", name, "'");
      given_[i] = nb::borrow(value);
    }
  }
  size_t place(std::string_view name) const {
    return size_t(std::find(parameters_.begin(), parameters_.end(), name) - parameters_.begin());
  }
  std::string function_;
  std::vector<std::string> parameters_;
  std::vector<nb::object> given_;
};

}  // namespace sf::py
