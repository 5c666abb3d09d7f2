// `scaffolding quantize`: what a model loses in few bits, and rules that fit a budget.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>

#include "apps/cli/commands.h"
#include "apps/cli/files.h"
#include "apps/cli/generation.h"
#include "apps/cli/load_model.h"
#include "apps/cli/output_file.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/scalar.h"
#include "scaffolding/diffusion/quantization/quantization_report.h"
#include "scaffolding/io/json.h"
#include "scaffolding/models/model.h"

namespace sf::cli {

using nlohmann::ordered_json;

namespace {

struct QuantizeOptions {
  GenerationSettings sampling;
  std::string type, budget, report;
  std::vector<std::string> rules;
  bool linear_only = false;
};

// "4GB", "512MB", "800000": bytes.
int64_t bytes_in(const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"", 1}};
  for (auto& [unit, by] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const std::string number = text.substr(0, text.size() - std::string_view(unit).size());
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end || !std::isfinite(value) || value <= 0 || value * by > 1e15) break;
    return int64_t(value * by);
  }
  fail("--budget: must be bytes as 4GB or 512MB, got '", text, "'");
}

std::vector<nn::QuantizeRule> own_rules(const QuantizeOptions& o) {
  std::vector<nn::QuantizeRule> out;
  for (auto& text : o.rules) {
    const size_t at = text.rfind('=');
    SF_CHECK(at != text.npos && at > 0, "--rule: must be PATTERN=TYPE, got '", text, "'");
    std::string type = text.substr(at + 1);
    if (type == "16") type.clear();
    else type = nn::known_quantized_format("--rule", type);
    out.push_back({text.substr(0, at), type});
  }
  return out;
}

ordered_json json_of(const diffusion::QuantizationReport& r, const QuantizeOptions& o,
                     const std::vector<nn::QuantizeRule>& proposed) {
  ordered_json out{{"model", o.sampling.model},
                   {"denoiser", r.model},
                   {"type", o.type},
                   {"bytes", r.bytes},
                   {"dense_bytes", r.dense_bytes}};
  ordered_json layers = ordered_json::array();
  int64_t fell_back = 0;
  for (auto& l : r.layers) {
    ordered_json row{{"name", l.name},
                     {"layer", l.type},
                     {"type", l.format},
                     {"numbers", l.numbers},
                     {"bytes", l.bytes},
                     {"dense_bytes", l.dense_bytes},
                     {"weight_error", l.weight_error}};
    row["output_error"] = l.output_error ? ordered_json(*l.output_error) : ordered_json();
    if (l.format != l.wanted) row["instead_of"] = l.wanted, ++fell_back;
    layers.push_back(std::move(row));
  }
  out["other_type"] = fell_back;
  out["layers"] = layers;
  out["prediction_errors"] = r.prediction_errors;
  out["picture"] = {{"mean_error", r.picture_error}};
  out["picture"]["psnr"] = std::isfinite(r.psnr) ? ordered_json(r.psnr) : ordered_json();
  if (!proposed.empty()) {
    ordered_json rules = ordered_json::object();
    for (auto& rule : proposed) rules[rule.pattern] = rule.format.empty() ? ordered_json() : ordered_json(rule.format);
    out["rules"] = rules;
  }
  return out;
}

std::string percent_of(double share) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << 100 * share << " %";
  return out.str();
}

void print(const ordered_json& r) {
  size_t width = 5;
  for (auto& l : r["layers"]) width = std::max(width, l["name"].get<std::string>().size());
  std::cout << std::left << std::setw(int(width) + 2) << "layer" << std::setw(16) << "type" << std::right
            << std::setw(12) << "bytes" << std::setw(12) << "weight" << std::setw(12) << "output"
            << "\n";
  for (auto& l : r["layers"]) {
    std::cout << std::left << std::setw(int(width) + 2) << l["name"].get<std::string>() << std::setw(16)
              << l["type"].get<std::string>() << std::right << std::setw(12) << l["bytes"].get<int64_t>()
              << std::setw(12) << percent_of(l["weight_error"]) << std::setw(12)
              << (l["output_error"].is_null() ? "-" : percent_of(l["output_error"]));
    if (l.contains("instead_of")) std::cout << "   instead of " << l["instead_of"].get<std::string>();
    std::cout << "\n";
  }
  std::cout << "\nlayers                 " << r["layers"].size() << ", " << r["other_type"]
            << " of them in another type than asked for\nbytes of the denoiser  " << r["bytes"] << " of "
            << r["dense_bytes"] << "\nits predictions        ";
  for (auto& e : r["prediction_errors"]) std::cout << percent_of(e) << "  ";
  std::cout << "\nthe picture            " << percent_of(r["picture"]["mean_error"]) << " off";
  if (!r["picture"]["psnr"].is_null())
    std::cout << ", " << std::fixed << std::setprecision(1) << r["picture"]["psnr"].get<double>() << " dB";
  std::cout << "\n";
}

void quantize(QuantizeOptions& o) {
  GenerationSettings& s = o.sampling;
  if (s.model.empty()) s.model = shipped_model();
  if (!o.report.empty()) check_output("--report", o.report, ".json");
  SF_CHECK(!o.type.empty() || !o.budget.empty(), "quantize: needs --type, as q4_K, or --budget, as 4GB");
  SF_CHECK(o.type.empty() || o.budget.empty(), "quantize: --type and --budget: give one of them");
  SF_CHECK(o.sampling.quantize.empty(), "quantize: the model is compared with itself in full: --type ",
           o.sampling.quantize, " says what its weights become");
  if (!o.type.empty()) o.type = nn::known_quantized_format("--type", o.type);
  nn::QuantizeOptions options;
  options.convolutions = !o.linear_only;
  for (auto& rule : own_rules(o)) options.rules.push_back(rule);
  const int64_t budget = o.budget.empty() ? 0 : bytes_in(o.budget);
  if (!s.seed) s.seed = 0;
  const auto full = load_model("quantize", s, {diffusion::Task::TextToImage});
  const auto other = load_model("quantize", s, {diffusion::Task::TextToImage});
  std::vector<nn::QuantizeRule> proposed;
  if (budget) {
    const auto denoiser = full->the_denoiser();
    SF_CHECK_AS(NotSupported, denoiser && denoiser->model(), "quantize: a ", full->name(),
                " has no denoiser to quantise");
    proposed = diffusion::rules_for_budget(*denoiser->model(), budget, options);
    o.type = "Q8_0";
    options.rules.insert(options.rules.end(), proposed.begin(), proposed.end());
    SF_CHECK(std::any_of(proposed.begin(), proposed.end(), [](auto& rule) { return !rule.format.empty(); }),
             "quantize: the denoiser fits ", o.budget, " as it is");
  }
  const auto call = [&] {
    const diffusion::AnyOptions made = batch_options("quantize", s, *full, 1);
    auto& generators = made.at<diffusion::Generators>("generator");
    generators.push_back(make_generator());
    generators.back()->manual_seed(uint64_t(*s.seed));
    return made;
  };
  const auto report = diffusion::report_quantization(*full, *other, o.type, options, call);
  const ordered_json out = json_of(report, o, proposed);
  if (!o.report.empty()) {
    std::ofstream file(o.report);
    file << io::json_text(out, 2) << "\n";
    SF_CHECK(file.good(), "quantize: cannot write '", o.report, "'");
  }
  if (s.json) std::cout << io::json_text(out, 2) << "\n";
  else print(out);
}

}  // namespace

void add_quantize(CLI::App& program) {
  auto* command = program.add_subcommand("quantize", "Measure what a model loses when its weights become few bits");
  auto o = std::make_shared<QuantizeOptions>();
  o->sampling.steps = 4;
  o->sampling.prompt = "a red apple";
  command->add_option("--prompt", o->sampling.prompt, "What the measured picture shows")->capture_default_str();
  add_sampling_options(*command, o->sampling, "model,-m,--model");
  command->add_option("--type", o->type,
                      "q8_0, q6_K, q5_K, q5_1, q5_0, q4_K, q4_1, q4_0, iq4_nl, q3_K, q2_K, nf4, fp4, int8, "
                      "float8_e4m3fn or float8_e5m2");
  command->add_option("--budget", o->budget,
                      "Instead of a type: so many bytes for the denoiser, as 4GB; the rules that fit are proposed");
  command->add_option("--rule", o->rules,
                      "PATTERN=TYPE: another type for layers of such names, or 16 to leave them; may be repeated");
  command->add_flag("--linear-only", o->linear_only, "Convolutions stay as they are");
  command->add_option("--report", o->report, "A file for the report, .json");
  command->footer(R"(Examples:
  scaffolding quantize --type q4_K
  scaffolding quantize models/emoji-128 --type q8_0 --rule "*attn2*=16" --report report.json
  scaffolding quantize stable-diffusion-1-5 --budget 600MB --prompt "a lighthouse" --steps 4 --json

Errors are norms of differences over those of the full model: of each layer's weight, of its output on what it is
given in the run, and of the noise that the denoiser predicts in each step on the same input.)");
  command->callback([o] { quantize(*o); });
}

}  // namespace sf::cli
