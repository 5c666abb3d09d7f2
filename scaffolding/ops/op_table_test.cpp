// docs/ops.md, docs/env.md and docs/autocast.md, written from the registries,
// and the tests that they and the ops' own tests are complete.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/ops/op_listing.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

namespace {

// Text inside a Markdown table.
std::string cell(const std::string& s) {
  std::string out;
  for (char c : s) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::map<std::string, size_t> sample_counts() {
  std::map<std::string, size_t> counts;
  for (OpTest* t : op_tests()) {
    if (t->all.empty() && t->refused.empty()) t->samples();
    counts[t->name] += t->all.size() + t->refused.size();
  }
  return counts;
}

std::string ops_document() {
  std::ostringstream out;
  out << "# Ops\n\nWritten by `make docs` from the registry; do not edit. Every op is a C++ function in namespace `sf` "
         "and a Python\nfunction of `scaffolding`, with these names and defaults; a gradient is recorded on the tape "
         "unless *no gradient* is\nsaid. `scaffolding ops NAME` shows what an op is tested against, its kernels and "
         "their instruction sets.\n\n"
      << "| Op | What it does |\n|---|---|\n";
  for (auto* op : all_ops())
    out << "| `" << cell(op->name + (op->has_inplace ? "`, `" + op->name + "_" : "")) << "`<br>`(" << cell(op->params)
        << ")` | " << cell(op->help) << (op->differentiable ? "" : " *No gradient.*") << " |\n";
  out << "\n" << all_ops().size() << " ops.\n";
  return out.str();
}

std::string environment_document() {
  std::ostringstream out;
  out << "# Environment variables\n\nWritten by `make docs` from core/env.cpp; do not edit. Read once, at first use; "
         "`scaffolding env` prints their values.\n\n"
         "| Variable | Default | What it does |\n|---|---|---|\n";
  for (auto& v : env::all())
    out << "| `" << v.name << "` | " << (*v.fallback ? "`" + std::string(v.fallback) + "`" : "") << " | "
        << cell(v.help) << " |\n";
  return out.str();
}

std::string autocast_document() {
  static constexpr const char* kNames[] = {"", "lower", "float32", "widest"};
  std::ostringstream out;
  out << "# Autocast\n\nWritten by `make docs` from autograd/autocast.def; do not edit. What `autocast` does to the "
         "floating inputs of an op, by\ndevice: *lower* converts them to autocast's dtype (bfloat16 on the CPU and "
         "float16 on CUDA, unless another is given),\n*float32* to float32, *widest* to the widest type among them. "
         "Ops that are not listed, and devices without an entry, run\nin the types that they are given; float64 "
         "stays as it is. The lists are PyTorch's; fused ops follow what they fuse.\n\n"
         "| Op | CPU | CUDA |\n|---|---|---|\n";
  for (auto& e : autocast::kTable)
    out << "| `" << e.op << "` | " << kNames[int(e.cpu)] << " | " << kNames[int(e.cuda)] << " |\n";
  return out.str();
}

std::string file_text(const std::string& path) {
  std::ifstream in(std::string(SF_SOURCE_DIR) + "/" + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string joined(const std::vector<std::string>& names) {
  std::string s;
  for (auto& n : names) s += " " + n;
  return s;
}

TEST(Documents, ops_md_is_what_the_registry_says) {
  EXPECT_TRUE(file_text("docs/ops.md") == ops_document()) << "docs/ops.md is stale; run `make docs` and commit it";
}

TEST(Documents, env_md_is_what_the_registry_says) {
  EXPECT_TRUE(file_text("docs/env.md") == environment_document())
      << "docs/env.md is stale; run `make docs` and commit it";
}

TEST(Documents, autocast_md_is_what_the_table_says) {
  EXPECT_TRUE(file_text("docs/autocast.md") == autocast_document())
      << "docs/autocast.md is stale; run `make docs` and commit it";
}

TEST(Registry, every_op_has_a_test_with_samples) {
  auto counts = sample_counts();
  std::vector<std::string> missing;
  for (auto* op : all_ops())
    if (counts[op->name] == 0) missing.push_back(op->name);
  EXPECT_TRUE(missing.empty()) << missing.size() << " ops have no SF_OP_TEST with a sample:" << joined(missing);
}

TEST(Registry, every_test_names_an_op) {
  for (OpTest* t : op_tests()) EXPECT_TRUE(find_op(t->name)) << "SF_OP_TEST(" << t->name << ") names no op";
}

// What torch computes is known for every op that can be compared: some sample of it has a golden file.
TEST(Registry, every_op_has_a_doc_and_a_reference_that_is_tested) {
  std::set<std::string> golden;
  for (OpTest* t : op_tests()) {
    if (t->all.empty() && t->refused.empty()) t->samples();
    for (auto& s : t->all)
      if (s->golden) golden.insert(t->name);
  }
  // torch has none of these; tests/python/ops/test_quantize.py compares them with bitsandbytes' numbers, and with
  // torch's float8 conversions, and test_gguf.py with the gguf package's; conv_int8_test.cpp with sums in float64.
  const std::set<std::string> elsewhere = {
      "quantize_nf4",       "dequantize_nf4",      "quantize_blockwise", "dequantize_blockwise", "linear_nf4",
      "quantize_fp8",       "dequantize_fp8",      "scaled_mm",          "linear_fp8",           "quantize_gguf",
      "dequantize_gguf",    "linear_gguf",         "quantize_fp4",       "dequantize_fp4",       "linear_fp4",
      "quantize_int8",      "dequantize_int8",     "linear_int8",        "linear_half",          "conv2d_int8",
      "quantize_conv_int8", "dequantize_conv_int8"};
  std::vector<std::string> undocumented, unlike;
  for (auto* op : all_ops()) {
    if (op->help.empty()) undocumented.push_back(op->name);
    if (elsewhere.count(op->name)) continue;
    bool in_place = op->name.ends_with('_');  // its result is its argument: the tests of the op itself compare it
    if (!op->is_random && !in_place && (op->reference.empty() || !golden.count(op->name))) unlike.push_back(op->name);
  }
  EXPECT_TRUE(undocumented.empty()) << "ops without .doc():" << joined(undocumented);
  EXPECT_TRUE(unlike.empty()) << "ops that nothing compares with their .like():" << joined(unlike);
}

}  // namespace

void write_table(const std::string& path) { std::ofstream(path) << ops_document(); }
void write_environment(const std::string& path) { std::ofstream(path) << environment_document(); }
void write_autocast(const std::string& path) { std::ofstream(path) << autocast_document(); }

}  // namespace sf::test
