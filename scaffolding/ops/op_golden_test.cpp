// Values and gradients against torch's. torch is not needed to run the tests: make_golden.py evaluated every sample
// with the op's `like` and wrote tests/golden/ops/<op>.safetensors.xz,
// with a hash of the sample that tells a stale fixture.
//   sample.<i>           (metadata) the hash of sample i
//   sample.<i>.out.<k>   (metadata) dtype and shape of output k; (tensor) its values
//   sample.<i>.grad.<k>  gradient of the k-th floating input of sum(y * c), c from cotangents()
// Of a large tensor sums are kept: see kept().
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_packed.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_check.h"
#include "scaffolding/ops/op_listing.h"

namespace sf::test {

namespace {

using nlohmann::json;

std::string fixture_path(const std::string& op) {
  return std::string(SF_SOURCE_DIR) + "/tests/golden/ops/" + op + ".safetensors.xz";
}

std::string hex(double d) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", d);
  return text;
}

// FNV-1a over what a sample is. Real numbers are rounded first: a sample made with exp() differs by its last bit from
// one processor to another, and is the same sample.
class Hash {
 public:
  void add(const void* p, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) h_ = (h_ ^ static_cast<const uint8_t*>(p)[i]) * 0x100000001b3ull;
  }
  void add(const std::string& s) {
    add(s.data(), s.size());
    add("|", 1);
  }
  void add(double d) {
    double r = std::isfinite(d) ? std::nearbyint(double(float(d)) * 0x1p20) + 0.0
               : std::isnan(d)  ? 0.5
                                : std::copysign(0.25, d);
    add(&r, sizeof r);
  }
  void add(const Tensor& t) {
    add(std::string(name(t.dtype())) + str(t.shape()));
    for (double d : t.to_vector()) add(d);
  }
  std::string str_of() const {
    char text[20];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h_));
    return text;
  }

 private:
  static std::string str(const Shape& s) { return sf::str(s); }
  uint64_t h_ = 0xcbf29ce484222325ull;
};

// The value as JSON for make_golden.py; tensors go to `tensors` under `key`.
json encode(const Value& v, const std::string& key, std::map<std::string, Tensor>& tensors) {
  auto tensor = [&](const Tensor& t, const std::string& name) -> json {
    if (!t) return nullptr;
    tensors[name] = t;
    return {{"tensor", name}, {"strides", empty_like(t).strides().vec()}};
  };
  if (auto* t = std::get_if<Tensor>(&v)) return tensor(*t, key);
  if (auto* b = std::get_if<bool>(&v)) return *b;
  if (auto* i = std::get_if<int64_t>(&v)) return *i;
  if (auto* d = std::get_if<double>(&v)) return {{"float", hex(*d)}};
  if (auto* s = std::get_if<std::string>(&v)) return *s;
  if (auto* s = std::get_if<Shape>(&v)) return s->vec();
  if (auto* t = std::get_if<DType>(&v)) return {{"dtype", std::string(name(*t))}};
  if (auto* d = std::get_if<Device>(&v)) return {{"device", d->str()}};
  json list = json::array();
  if (auto* f = std::get_if<Floats>(&v)) {
    for (double d : *f) list.push_back({{"float", hex(d)}});
    return {{"list", list}};
  }
  if (auto* ts = std::get_if<Tensors>(&v)) {
    for (size_t i = 0; i < ts->size(); ++i) list.push_back(tensor((*ts)[i], key + "." + std::to_string(i)));
    return {{"list", list}};
  }
  return nullptr;
}

std::string hash_of(const OpEntry& op, const Sample& s) {
  Hash h;
  h.add(op.reference);
  h.add(std::string(op.differentiable && s.grad ? "gradients" : "values"));
  auto args = complete(op, s);
  std::map<std::string, Tensor> tensors;
  for (size_t i = 0; i < args.size(); ++i) {
    h.add(op.args[i].name);
    h.add(encode(args[i], op.args[i].name, tensors).dump());
  }
  for (auto& [key, t] : tensors) h.add(t);
  return h.str_of();
}

bool wants_fixture(const OpEntry& op, const OpTest& t) {
  return !op.is_random && std::any_of(t.all.begin(), t.all.end(), [](auto& s) { return s->golden; });
}

// What is kept of a tensor, in row-major order: up to kKept values themselves, of more the sums of every kKept-th, each
// value with a sign of its place. So every value is seen, and an error is as large beside the whole as it was. Of
// values that have no such sums (infinite, huge, no number) every n-th. make_golden.py has the same rule.
constexpr int64_t kKept = 256;
Tensor kept(const Tensor& t) {
  Tensor flat = contiguous(t).reshape({t.numel()});
  int64_t n = t.numel();
  if (n <= kKept) return flat;
  auto values = flat.to_vector();
  if (!std::all_of(values.begin(), values.end(), [](double v) { return std::abs(v) < 0x1p40; }))
    return contiguous(flat.slice(0, 0, n, (n + kKept - 1) / kKept));
  std::vector<double> sums(kKept);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t u = uint64_t(i + 1) * 0x9e3779b97f4a7c15ull;
    u = (u ^ (u >> 29)) * 0xbf58476d1ce4e5b9ull;
    sums[i % kKept] += u >> 63 ? -values[i] : values[i];
  }
  return tensor(sums, {kKept}, kFloat64);
}

// The coarsest floating type that the sample computes in.
DType coarsest(const std::vector<Value>& args, const Tensors& ys) {
  DType worst = kFloat64;
  auto see = [&](DType t) {
    if (is_floating(t) && !is_float8(t) && (size_of(t) < size_of(worst) || t == kBFloat16)) worst = t;
  };
  map_tensors(args, [&](const Tensor& t) { return see(t.dtype()), t; });
  for (auto& a : args)
    if (auto* t = std::get_if<DType>(&a)) see(*t);
  for (auto& y : ys) see(y.dtype());
  return worst;
}

void check_sample(const OpEntry& op, const Sample& s, const io::SafetensorsFile& file, const std::string& key) {
  // Dense copies: what a view op sees must have the layout that make_golden.py gave torch.
  auto args = map_tensors(complete(op, s), [](const Tensor& t) {
    Tensor dense = empty_like(t);
    copy_bytes(dense, t);
    return dense;
  });
  bool gradients = op.differentiable && s.grad;
  SCOPED_TRACE(describe(op, args) + " " + key);
  Evaluation e = evaluate(op, args, gradients);
  DType worst = coarsest(args, e.all);
  // In float64 both sides are exact to a few roundings; torch's own rounding adds to ours in the other types.
  double tol = worst == kFloat64 ? 1e-10 : 4 * tolerance(worst, reduction_length(args, e.values));
  size_t count = 0;
  while (file.metadata().count(key + ".out." + std::to_string(count))) ++count;
  ASSERT_EQ(e.all.size(), count) << "the number of outputs";
  for (size_t i = 0; i < count; ++i) {
    std::string name = key + ".out." + std::to_string(i);
    const Tensor& y = e.all[i];
    ASSERT_EQ(std::string(sf::name(y.dtype())) + " " + str(y.shape()), file.metadata().at(name))
        << "output " << i << " against torch's";
    Tensor want = file.get(name);
    if (is_real(y)) expect_close(kept(y), want, tol, "output " + std::to_string(i));
    else EXPECT_EQ(kept(y).to_vector(), want.to_vector()) << "output " << i;
  }
  if (!gradients) return;
  std::vector<Tensor> inputs;
  map_tensors(args, [&](const Tensor& t) {
    if (is_real(t)) inputs.push_back(t);
    return t;
  });
  for (size_t i = 0; i < inputs.size(); ++i) {  // no gradient and a gradient of zeros are the same here
    std::string name = key + ".grad." + std::to_string(i);
    Tensor got =
        i < e.gradients.size() && e.gradients[i] ? kept(e.gradients[i]) : kept(zeros(inputs[i].shape(), kFloat64));
    Tensor want = file.contains(name) ? file.get(name) : zeros(got.shape(), kFloat64);
    expect_close(got, want, 4 * tol, "gradient of input " + std::to_string(i));
  }
}

}  // namespace

void check_golden(const OpEntry& op, const OpTest& t) {
  if (!wants_fixture(op, t)) return;
  std::string path = fixture_path(op.name);
  ASSERT_TRUE(std::filesystem::exists(path))
      << op.name << " has samples and no golden file; run `make golden` and commit tests/golden/ops/" << op.name
      << ".safetensors.xz";
  io::SafetensorsFile file(io::Bytes::take(unpacked(path), path));
  for (size_t i = 0; i < t.all.size(); ++i) {
    if (!t.all[i]->golden) continue;
    std::string key = "sample." + std::to_string(i);
    auto found = file.metadata().find(key);
    bool fresh = found != file.metadata().end() && found->second == hash_of(op, *t.all[i]);
    EXPECT_TRUE(fresh) << op.name << ": tests/golden/ops/" << op.name << ".safetensors.xz is stale at sample " << i
                       << " (its inputs or the op's `like` changed); run `make golden` and commit the file";
    if (fresh) check_sample(op, *t.all[i], file, key);
  }
}

void dump_samples(const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (OpTest* t : op_tests()) {
    OpEntry* op = find_op(t->name);
    SF_CHECK_AS(RuntimeError, op, t->name, " is not registered with SF_OP");
    t->samples();
    if (!wants_fixture(*op, *t)) continue;
    std::map<std::string, Tensor> tensors;
    json samples = json::array();
    for (size_t i = 0; i < t->all.size(); ++i) {
      const Sample& s = *t->all[i];
      if (!s.golden) continue;
      auto args = complete(*op, s);
      json list = json::array();
      for (size_t k = 0; k < args.size(); ++k) {
        const ArgInfo& a = op->args[k];
        // as the op sees it
        if (auto* one = std::get_if<int64_t>(&args[k]); one && a.kind == ArgKind::Ints) args[k] = Shape{*one};
        json value = encode(args[k], std::to_string(i) + "." + a.name, tensors);
        std::map<std::string, Tensor> unused;
        json fallback = a.has_default ? encode(a.fallback, "", unused) : json("");
        list.push_back({{"name", a.name},
                        {"value", value},
                        {"is_default", a.has_default && value == fallback},
                        {"is_tensor", a.kind == ArgKind::Tensor}});
      }
      samples.push_back(
          {{"index", i}, {"hash", hash_of(*op, s)}, {"gradients", op->differentiable && s.grad}, {"args", list}});
    }
    std::ofstream out(folder + "/" + op->name + ".json");
    out << json{{"op", op->name}, {"like", op->reference}, {"samples", samples}}.dump(1) << "\n";
    io::save_safetensors(tensors, folder + "/" + op->name + ".safetensors");
  }
}

}  // namespace sf::test
