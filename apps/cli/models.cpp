// `scaffolding models`: the models that are on this machine.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <iomanip>
#include <iostream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/model_names.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/diffusion/memory/plan.h"
#include "scaffolding/io/json.h"
#include "scaffolding/models/single_file/description.h"

namespace sf::cli {

using models::ModelDescription;
using nlohmann::ordered_json;

namespace {

constexpr size_t kMostThreads = 8, kPerThread = 64;

struct ModelsOptions {
  std::string name, kind;
  bool json = false;
};

struct Row {
  io::LocalModel model;
  ModelDescription is;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

bool contains(const std::string& text, const std::string& part) { return lower(text).find(lower(part)) != text.npos; }

// Headers lie all over the disk: several threads wait for them.
std::vector<ModelDescription> described(const std::vector<io::LocalModel>& found) {
  std::vector<ModelDescription> out(found.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> out_of_memory{false};
  auto work = [&] {
    for (size_t i; (i = next++) < found.size();) out[i] = models::describe_model(found[i]);
  };
  const size_t wanted =
      std::min({kMostThreads, size_t(std::thread::hardware_concurrency()), found.size() / kPerThread});
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() + 1 < wanted)
        threads.emplace_back([&] {
          try {
            work();
          } catch (const std::bad_alloc&) {
            next = found.size(), out_of_memory = true;
          }
        });
    } catch (const std::system_error&) {  // no room for another: those that are there do it
    }
    work();
  }
  if (out_of_memory) throw std::bad_alloc();
  return out;
}

size_t place_of(const std::string& kind) {
  auto& kinds = models::described_kinds();
  return size_t(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
}

bool is_wanted(const Row& row, const std::string& kind) {
  if (kind.empty()) return true;
  return place_of(lower(kind)) < models::described_kinds().size() ? row.is.kind == lower(kind)
                                                                  : contains(row.is.title, kind);
}

void print(const std::vector<Row>& rows) {
  size_t kind = 0, precision = 0, name = 0;
  for (auto& row : rows) {
    kind = std::max(kind, row.is.title.size());
    precision = std::max(precision, row.is.precision.size());
    name = std::max(name, printable(io::short_name(row.model)).size());
  }
  kind = std::min<size_t>(kind, 48), name = std::min<size_t>(name, 48);
  for (auto& row : rows) {
    auto& [model, is] = row;
    const std::string called = model.repository ? model.name : io::short_name(model);
    std::cout << std::left << std::setw(int(name) + 2) << printable(called) << std::setw(int(kind) + 2)
              << (is.kind == "broken" ? "broken" : is.title) << std::setw(int(precision) + 2) << is.precision
              << std::right << std::setw(8) << diffusion::bytes_text(int64_t(is.bytes)) << "  "
              << printable(model.path);
    if (!is.problem.empty()) std::cout << "  (" << is.problem << ")";
    std::cout << "\n";
  }
}

ordered_json json_of(const Row& row) {
  auto& [model, is] = row;
  ordered_json out{{"name", model.repository ? model.name : io::short_name(model)},
                   {"kind", is.kind},
                   {"title", is.title},
                   {"precision", is.precision.empty() ? ordered_json() : ordered_json(is.precision)},
                   {"parameters", is.parameters},
                   {"bytes", is.bytes},
                   {"path", model.path},
                   {"place", model.name},
                   {"program", model.program}};
  if (!is.problem.empty()) out["problem"] = is.problem;
  return out;
}

void list_models(const ModelsOptions& o) {
  std::vector<io::LocalModel> found = known_models();
  if (!o.name.empty()) std::erase_if(found, [&](auto& model) { return !contains(model.name, o.name); });
  const std::vector<ModelDescription> descriptions = described(found);
  std::vector<Row> rows;
  for (size_t i = 0; i < found.size(); ++i)
    if (Row row{found[i], descriptions[i]}; is_wanted(row, o.kind)) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) {
    auto key = [](const Row& row) {
      return std::tuple(place_of(row.is.kind), row.is.title, lower(io::short_name(row.model)), row.model.path);
    };
    return key(a) < key(b);
  });
  if (o.json) {
    ordered_json out = ordered_json::array();
    for (auto& row : rows) out.push_back(json_of(row));
    std::cout << io::tolerant_json_text(out, 2) << "\n";
    return;
  }
  print(rows);
  if (rows.empty())
    std::cerr << "scaffolding: no models " << (o.kind.empty() && o.name.empty() ? "" : "of that kind and name ")
              << "were found; SF_MODELS names folders to look in\n";
}

}  // namespace

void add_models(CLI::App& program) {
  auto* command = program.add_subcommand(
      "models", "List the models on this machine: in Hugging Face's cache, ComfyUI's and the web UIs' folders");
  auto o = std::make_shared<ModelsOptions>();
  command->add_option("name", o->name, "Only those whose name or folder contains this");
  std::string kinds;
  for (auto& kind : models::described_kinds()) kinds += (kinds.empty() ? "" : ", ") + kind;
  command->add_option("--kind", o->kind, "Only these: " + kinds + "; or a part of what is shown, such as XL");
  command->add_flag("--json", o->json, "For programs: JSON on standard output");
  command->footer(R"(Examples:
  scaffolding models
  scaffolding models --kind lora            of XL: --kind XL
  scaffolding models dreamshaper --json     those whose name or folder has this)");
  command->callback([o] { list_models(*o); });
}

}  // namespace sf::cli
