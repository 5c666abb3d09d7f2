#include "apps/cli/inspect_lora.h"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "scaffolding/core/error.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/json.h"
#include "scaffolding/models/adapters/lora_bases.h"

namespace sf::cli {

using nlohmann::ordered_json;

namespace {

constexpr size_t kWords = 8;  // trigger words that are shown
constexpr size_t kKeys = 3;   // unused keys in the lines; JSON has all

// Metadata that says what a LoRA is for, in the names of kohya's scripts and of Stability's specification.
constexpr std::pair<const char*, const char*> kTold[] = {{"ss_output_name", "name"},
                                                         {"modelspec.title", "title"},
                                                         {"ss_base_model_version", "trained_on"},
                                                         {"modelspec.architecture", "architecture"},
                                                         {"modelspec.trigger_phrase", "trigger_phrase"}};

std::string text_of(double v) {
  std::ostringstream out;
  out << v;
  return out.str();
}

// How often each is there: {"8": 722}, the most frequent first.
template <class T> ordered_json counted(const std::map<T, size_t>& counts) {
  std::vector<std::pair<T, size_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.second > b.second; });
  ordered_json out = ordered_json::object();
  for (auto& [value, n] : order) out[text_of(double(value))] = n;
  return out;
}

// The most frequent of kohya's tags, {folder: {tag: count}}: what the pictures that it was trained with show.
ordered_json trigger_words(const std::string& tag_frequency) {
  std::map<std::string, int64_t> counts;
  try {
    const io::Object folders = io::parse_config(tag_frequency, "ss_tag_frequency");
    for (size_t i = 1; i < folders.items().size(); i += 2) {
      const io::Object& tags = folders.items()[i];
      if (!tags.is_dict()) continue;
      for (size_t k = 0; k + 1 < tags.items().size(); k += 2)
        if (tags.items()[k + 1].is(io::Object::Int)) {
          std::string tag = tags.items()[k].text();
          tag.erase(0, std::min(tag.find_first_not_of(' '), tag.size()));
          tag.erase(tag.find_last_not_of(' ') + 1);
          counts[tag] += std::min<int64_t>(tags.items()[k + 1].as_int(), 1 << 30);
        }
    }
  } catch (const Error&) {
    return ordered_json::object();  // metadata of strangers: nothing depends on it
  }
  std::vector<std::pair<std::string, int64_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.second > b.second; });
  ordered_json out = ordered_json::object();
  for (size_t i = 0; i < std::min(kWords, order.size()); ++i) out[order[i].first] = order[i].second;
  return out;
}

void add_base(ordered_json& out, const models::LoraFile& file) {
  const auto bases = models::lora_bases(file);
  out["base"] = ordered_json::array();
  for (auto& base : bases)
    if (base.fitting == bases[0].fitting) out["base"].push_back(base.kind->title);
  if (bases.empty()) return;
  std::vector<const models::AdapterStems*> components;
  for (auto& stems : *bases[0].stems) components.push_back(&stems);
  const models::LoraMatch lora = file.match(components, false);
  for (auto& [component, layers] : lora.layers) out["layers"][component] = layers.size();
  for (auto& key : lora.report.keys)
    if (key.use != models::LoraKey::Applied)
      out[key.use == models::LoraKey::Unused ? "unused" : "wrong_shape"][key.key] = key.why;
}

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string listed(const ordered_json& counts) {
  std::string out;
  for (auto& [value, n] : counts.items())
    out += (out.empty() ? "" : ", ") + value + (counts.size() > 1 ? " (" + io::json_text(n) + ")" : "");
  return out;
}

}  // namespace

ordered_json lora_json(const std::string& path) {
  ordered_json out;
  try {
    const models::LoraFile file(path);
    out["format"] = file.format();
    out["base"] = nullptr;
    out["layers"] = ordered_json::object();
    std::map<int64_t, size_t> ranks;
    std::map<double, size_t> alphas;
    std::map<std::string, size_t> others;
    for (auto& stem : file.stems()) {
      if (stem.kind) ++others[stem.kind];
      if (stem.rank) ++ranks[stem.rank];
      if (stem.alpha) ++alphas[*stem.alpha];
    }
    out["ranks"] = counted(ranks);
    out["alphas"] = counted(alphas);
    if (!others.empty()) out["not_supported"] = others;
    const auto metadata = file.metadata();
    for (auto& [key, name] : kTold)
      if (auto found = metadata.find(key); found != metadata.end()) out[name] = found->second;
    if (auto tags = metadata.find("ss_tag_frequency"); tags != metadata.end())
      out["trigger_words"] = trigger_words(tags->second);
    add_base(out, file);
  } catch (const Error& e) {
    out["error"] = e.what();
  }
  return out;
}

void print_lora(const ordered_json& lora) {
  auto text = [](const ordered_json& value) {
    const std::string all = value.get<std::string>();
    return all.size() > 200 ? all.substr(0, 200) + "..." : all;
  };
  if (lora.contains("format")) {
    const std::string format = lora["format"].get<std::string>();
    std::string bases;
    if (lora["base"].is_array())
      for (auto& base : lora["base"]) bases += (bases.empty() ? "" : ", ") + base.get<std::string>();
    std::cout << "  LoRA in the format of " << (format.empty() ? "no program that is known here" : format) << "\n  for "
              << (bases.empty() ? "no model that is known here" : bases) << "\n";
    for (auto& [component, n] : lora["layers"].items()) std::cout << "  " << component << ": " << n << " layers\n";
    if (!lora["ranks"].empty()) std::cout << "  rank " << listed(lora["ranks"]) << "\n";
    std::cout << "  alpha " << (lora["alphas"].empty() ? "as the rank, or by a config" : listed(lora["alphas"]))
              << "\n";
    for (auto& [key, name] : kTold)
      if (lora.contains(name)) std::cout << "  " << spaced(name) << ": " << text(lora[name]) << "\n";
    if (lora.contains("trigger_words") && !lora["trigger_words"].empty())
      std::cout << "  trigger words: " << listed(lora["trigger_words"]) << "\n";
    if (lora.contains("not_supported"))
      for (auto& [kind, n] : lora["not_supported"].items())
        std::cout << "  " << n << " layers of " << kind << ", which is not supported yet\n";
    for (auto* use : {"unused", "wrong_shape"}) {
      if (!lora.contains(use)) continue;
      std::cout << "  " << spaced(use) << ": " << lora[use].size() << " keys\n";
      size_t n = 0;
      for (auto& [key, why] : lora[use].items())
        if (n++ < kKeys) std::cout << "    '" << key << "' " << why.get<std::string>() << "\n";
    }
  }
  if (lora.contains("error")) std::cout << "  cannot be applied: " << lora["error"].get<std::string>() << "\n";
}

}  // namespace sf::cli
