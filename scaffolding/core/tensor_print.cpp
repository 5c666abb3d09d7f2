#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "scaffolding/core/print.h"

namespace sf {

PrintOptions& print_options() {
  static PrintOptions options;
  return options;
}

std::string grad_fn_name(const char* op) {
  if (std::string_view(op).ends_with("Backward")) return op;  // a user's Function has its class's name
  std::string out;
  bool upper = true;
  for (const char* c = op; *c; ++c) {
    if (*c == '_') {
      upper = true;
      continue;
    }
    out += upper ? char(std::toupper(*c)) : *c;
    upper = false;
  }
  return out + "Backward0";
}

namespace {

std::string format_real(const char* conversion, double v,
                        int precision) {  // "%.*f" or "%.*e", with Python's inf and nan
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, conversion, precision, v);
  return buffer;
}

// A host tensor whose elements are read one by one.
struct Reader {
  const TensorImpl* t;
  double real(int64_t offset) const {
    return visit_dtype(t->dtype, [&](auto tag) -> double {
      using T = typename decltype(tag)::type;
      T v = static_cast<const T*>(t->data)[offset];
      if constexpr (std::is_arithmetic_v<T>) return double(v);
      else return to_float(v);
    });
  }
  int64_t integer(int64_t offset) const {
    return visit_dtype(t->dtype, [&](auto tag) -> int64_t {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_integral_v<T>) return int64_t(static_cast<const T*>(t->data)[offset]);
      else return 0;
    });
  }
};

class Printer {
 public:
  explicit Printer(const Tensor& t) : t_(t), in_{t.impl()}, summarize_(t.numel() > o_.threshold) {
    floating_ = is_floating(t.dtype());
    measure();
  }

  std::string str(int indent) const { return block(0, 0, indent); }

 private:
  // Calls f for the offset of every element that will be shown.
  template <class F> void visit_shown(int64_t dim, int64_t offset, const F& f) const {
    if (dim == t_.ndim()) return f(offset);
    int64_t n = t_.shape()[dim], step = t_.strides()[dim];
    bool cut = summarize_ && n > 2 * o_.edgeitems;
    for (int64_t i = 0; i < n; ++i) {
      if (cut && i == o_.edgeitems) i = n - o_.edgeitems;
      if (i < n) visit_shown(dim + 1, offset + i * step, f);
    }
  }

  void measure() {
    auto widen = [&](const std::string& s) { width_ = std::max(width_, int(s.size())); };
    if (!floating_) {
      visit_shown(0, 0, [&](int64_t at) { widen(value(at)); });
      return;
    }
    double low = INFINITY, high = 0;
    bool whole = true, any = false;
    visit_shown(0, 0, [&](int64_t at) {
      double v = in_.real(at), a = std::fabs(v);
      if (!std::isfinite(v) || v == 0) return;
      any = true;
      low = std::min(low, a);
      high = std::max(high, a);
      whole = whole && v == std::ceil(v);
    });
    if (!any) return;
    whole_ = whole;
    scientific_ = o_.sci_mode.value_or(high / low > 1000 || high > 1e8 || low < 1e-4);
    visit_shown(0, 0, [&](int64_t at) {
      double v = in_.real(at);
      if (std::isfinite(v) && v != 0) widen(value(at));
    });
  }

  std::string value(int64_t at) const {
    if (!floating_) {
      if (t_.dtype() == kBool) return in_.integer(at) ? "True" : "False";
      return std::to_string(in_.integer(at));
    }
    double v = in_.real(at);
    if (scientific_) return format_real("%.*e", v, o_.precision);
    if (!whole_) return format_real("%.*f", v, o_.precision);
    return format_real("%.*f", v, 0) + (std::isfinite(v) ? "." : "");
  }
  std::string padded(int64_t at) const {
    std::string s = value(at);
    return std::string(size_t(std::max(0, width_ - int(s.size()))), ' ') + s;
  }

  std::string row(int64_t offset, int indent) const {
    int64_t n = t_.shape().back(), step = t_.strides().back();
    std::vector<std::string> data;
    bool cut = summarize_ && n > 2 * o_.edgeitems;
    for (int64_t i = 0; i < n; ++i) {
      if (cut && i == o_.edgeitems) {
        data.push_back(o_.edgeitems ? " ..." : "...");
        i = n - o_.edgeitems;
        if (i >= n) break;
      }
      data.push_back(padded(offset + i * step));
    }
    size_t per_line = size_t(std::max(1, int(std::floor(double(o_.linewidth - indent) / (width_ + 2)))));
    std::string out = "[";
    for (size_t i = 0; i < data.size(); ++i) {
      if (i) out += i % per_line ? ", " : ",\n" + std::string(size_t(indent) + 1, ' ');
      out += data[i];
    }
    return out + "]";
  }

  std::string block(int64_t dim, int64_t offset, int indent) const {
    int64_t left = t_.ndim() - dim;
    if (left == 0) return padded(offset);
    if (left == 1) return row(offset, indent);
    std::string between = "," + std::string(size_t(left - 1), '\n') + std::string(size_t(indent) + 1, ' '), out = "[";
    int64_t n = t_.shape()[dim], step = t_.strides()[dim];
    bool cut = summarize_ && n > 2 * o_.edgeitems;
    for (int64_t i = 0; i < n; ++i) {
      if (i) out += between;
      if (cut && i == o_.edgeitems) {
        out += "...";
        i = n - o_.edgeitems;
        if (i >= n) break;
        out += between;
      }
      out += block(dim + 1, offset + i * step, indent + 1);
    }
    return out + "]";
  }

  const PrintOptions& o_ = print_options();
  Tensor t_;
  Reader in_;
  bool summarize_, floating_ = false, whole_ = true, scientific_ = false;
  int width_ = 1;
};

std::string tuple_of(const Shape& s) {
  std::string text = str(s);
  return "(" + text.substr(1, text.size() - 2) + (s.size() == 1 ? ",)" : ")");
}

}  // namespace

std::string to_string(const Tensor& t, const std::string& prefix, const std::string& dtype_prefix) {
  if (!t) return "tensor(undefined)";
  int indent = int(prefix.size());
  std::vector<std::string> suffixes;
  if (t.device().type != Device::CPU) suffixes.push_back("device='" + t.device().str() + "'");
  bool usual = t.dtype() == default_dtype() || t.dtype() == kInt64 || t.dtype() == kBool;
  std::string dtype = "dtype=" + dtype_prefix + std::string(name(t.dtype())), content;
  if (t.device().is_meta()) {
    content = "...";
    suffixes.push_back("size=" + tuple_of(t.shape()));
    if (t.dtype() != default_dtype()) suffixes.push_back(dtype);
  } else if (t.numel() == 0) {
    content = "[]";
    if (t.ndim() != 1) suffixes.push_back("size=" + tuple_of(t.shape()));
    if (t.dtype() != default_dtype()) suffixes.push_back(dtype);
  } else {
    if (!usual) suffixes.push_back(dtype);
    Tensor host = t.detach().to(Device::CPU);
    content = Printer(host).str(indent);
  }
  if (std::string place = place_on_tape(t); !place.empty()) suffixes.push_back(place);

  std::string out = prefix + content;
  auto newline = out.rfind('\n');
  // rfind gives -1 in torch's sum
  int64_t last = newline == out.npos ? int64_t(out.size()) + 2 : int64_t(out.size() - newline) + 1;
  for (auto& s : suffixes) {
    if (last + int64_t(s.size()) + 2 > print_options().linewidth) {
      out += ",\n" + std::string(size_t(indent), ' ') + s;
      last = indent + int64_t(s.size());
    } else {
      out += ", " + s;
      last += int64_t(s.size()) + 2;
    }
  }
  return out + ")";
}

std::string Tensor::str() const { return to_string(*this); }

}  // namespace sf
