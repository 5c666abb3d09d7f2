#include "apps/cli/loras.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "apps/cli/suggestions.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/hub_cache.h"

namespace sf::cli {

namespace fs = std::filesystem;
using diffusion::LoraTag;
using nlohmann::ordered_json;

namespace {

constexpr size_t kNames = 8;  // that an error lists

// "file.safetensors:0.8", "name:0.5:0.8", or either alone. Paths may have colons of their own.
LoraTag given_lora(const std::string& text) {
  if (models::is_lora_path(text)) return {text};
  const size_t begin = text.rfind('/') == text.npos ? 0 : text.rfind('/');
  size_t colon = text.find(':', begin);
  for (size_t at = colon; at != text.npos; at = text.find(':', at + 1))
    if (models::is_lora_path(text.substr(0, at))) colon = at;
  if (colon == text.npos) return {text};
  return diffusion::lora_tag(text.substr(0, colon), text.substr(colon + 1), "--lora: " + text);
}

std::vector<std::string> folders_of(const std::string& list) {
  std::vector<std::string> out;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    if (end > at) out.push_back(io::expand_user(list.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

std::string quoted_list(const std::vector<std::string>& names, const char* last) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "'" : i + 1 == names.size() ? std::string(last) + "'" : ", '") + names[i] + "'";
  return out;
}

class Finder {
 public:
  explicit Finder(const LoraSettings& s)
      : places_(s.folders.empty() ? folders_of(env::text("SF_LORA_DIR")) : s.folders) {
    if (!s.folders.empty()) check("--lora-dir");
  }

  std::vector<std::string> all(const std::string& name) {
    if (places_.empty()) return {};
    if (!folders_) {
      check("SF_LORA_DIR");       // it may be out of date where no name is asked for
      folders_.emplace(places_);  // which takes reading all of them
    }
    return folders_->find(name);
  }
  // where: how errors begin, with what joins them to the rest
  std::string only(const std::string& name, const std::string& where) {
    const auto found = all(name);
    if (found.size() == 1) return found[0];
    SF_CHECK(!places_.empty(), where, " no folder of LoRAs is known; name one with --lora-dir or SF_LORA_DIR");
    SF_CHECK(found.empty(), where, " ", quoted_list(found, " and "), " have the name '", name,
             "'; say which with its folder's name before it, or by its path with --lora");
    std::vector<std::string> names = folders_->names();
    std::string hint = did_you_mean(name, names);
    if (hint.empty() && !names.empty()) {
      const bool more = names.size() > kNames;
      names.resize(std::min(names.size(), kNames));
      hint = "; there " + std::string(names.size() == 1 ? "is " : "are ") + quoted_list(names, more ? ", " : " and ") +
             (more ? ", ..." : "");
    }
    fail(where, " there is no LoRA '", name, "' below ", quoted_list(places_, " and "), hint,
         hint.ends_with('?') ? " " : "; ", "--lora-dir names other folders");
  }
  // The file that a picture was made with: where it was, or by its name.
  std::string same(const UsedLora& lora) {
    std::vector<std::string> found;
    auto is_it = [&](const std::string& path) {
      found.push_back(path);
      return hash_of(path) == lora.hash;
    };
    if (models::is_lora_path(lora.path) && is_it(lora.path)) return lora.path;
    for (auto& path : all(lora.tag.name))
      if (is_it(path)) return path;
    SF_CHECK(!found.empty(), "--like: the LoRA '", lora.tag.name, "' is not at '", lora.path,
             "' any more; --lora-dir names a folder to look below");
    fail("--like: '", found[0], "' is not the LoRA '", lora.tag.name, "' that the picture was made with: its hash is ",
         models::lora_hash(found[0]), ", not ", lora.hash, "; --lora-dir names a folder with the other, --lora takes ",
         "this one all the same");
  }

 private:
  void check(const char* source) const {
    std::error_code error;
    for (auto& place : places_) SF_CHECK(fs::is_directory(place, error), source, ": there is no folder '", place, "'");
  }
  // Absent where the file cannot be read: it is none that a picture was made with.
  static std::optional<std::string> hash_of(const std::string& path) {
    try {
      return models::lora_hash(path);
    } catch (const Error&) {
      return {};
    }
  }

  std::vector<std::string> places_;
  std::optional<models::LoraFolders> folders_;
};

bool same_file(const UsedLora& a, const UsedLora& b) {
  std::error_code error;
  return fs::equivalent(a.path, b.path, error);
}

// A name in the web UI's text, where these end it.
std::string plain_name(std::string name) {
  std::erase_if(name, [](char c) { return std::string_view(":,<>").find(c) != std::string_view::npos; });
  return name;
}

}  // namespace

void add_lora_options(CLI::App& c, LoraSettings& s) {
  constexpr const char* kGroup = "LoRA";
  // one value each: the prompt may stand behind it
  c.add_option("--lora", s.given,
               "A LoRA's file, or its name below --lora-dir, and how strongly: style:0.8, or style:0.5:0.8 for text "
               "encoders and denoiser; may be given again. <lora:style:0.8> in the prompt does the same")
      ->allow_extra_args(false)
      ->group(kGroup);
  c.add_option("--lora-dir", s.folders,
               "A folder of LoRAs, found by name in it and below; may be given again. Without it, those of SF_LORA_DIR")
      ->allow_extra_args(false)
      ->group(kGroup);
}

void find_loras(LoraSettings& s, const std::vector<LoraTag>& tags) {
  Finder finder(s);
  std::vector<UsedLora> options, tagged;
  for (auto& text : s.given) {
    UsedLora lora{given_lora(text), {}, {}};
    const std::string& name = lora.tag.name;
    lora.path = models::is_lora_path(name) ? name : finder.only(name, "--lora: there is no file '" + name + "', and");
    lora.tag.name = models::lora_name(lora.path);
    options.push_back(std::move(lora));
  }
  for (auto& lora : s.repeated)
    if (!lora.in_prompt) options.push_back(lora), options.back().path = finder.same(lora);
  for (auto& tag : tags) {
    UsedLora lora{tag, {}, {}, true};
    auto named = [&](const UsedLora& other) { return other.tag.name == tag.name; };
    auto tag_again = [&](const UsedLora& other) { return other.in_prompt && named(other); };
    auto option = std::find_if(options.begin(), options.end(), named);
    auto again = std::find_if(s.repeated.begin(), s.repeated.end(), tag_again);
    // Of a new prompt a name is what it is below the folders, where it is there.
    const bool is_again = again != s.repeated.end() && (s.repeats_prompt || finder.all(tag.name).empty());
    lora.path = option != options.end() ? option->path
                : is_again              ? finder.same(*again)
                                        : finder.only(tag.name, "prompt: " + text_of(tag) + ":");
    if (is_again && option == options.end()) lora.hash = again->hash;
    tagged.push_back(std::move(lora));
  }
  std::erase_if(options, [&](const UsedLora& option) {
    return std::any_of(tagged.begin(), tagged.end(), [&](const UsedLora& tag) { return same_file(option, tag); });
  });
  s.used = std::move(options);
  s.used.insert(s.used.end(), tagged.begin(), tagged.end());
  sources_of(s.used);  // two files of one name are refused now
}

std::vector<diffusion::LoraSource> sources_of(const std::vector<UsedLora>& used) {
  std::vector<UsedLora> files;
  for (auto& lora : used) {
    auto file = std::find_if(files.begin(), files.end(), [&](auto& other) { return same_file(lora, other); });
    if (file != files.end()) {
      file->tag.denoiser += lora.tag.denoiser;
      file->tag.text_encoders += lora.tag.text_encoders;
      continue;
    }
    for (auto& other : files)
      SF_CHECK(models::lora_name(other.path) != models::lora_name(lora.path), "--lora: '", other.path, "' and '",
               lora.path, "' have the same name, by which a picture could not be repeated; rename one of them");
    files.push_back(lora);
  }
  std::vector<diffusion::LoraSource> out;
  for (auto& file : files) out.push_back({file.path, file.tag.denoiser, file.tag.text_encoders});
  return out;
}

void hash_loras(std::vector<UsedLora>& used) {
  for (auto& lora : used)
    if (lora.hash.empty()) lora.hash = models::lora_hash(lora.path);
}

ordered_json loras_json(const std::vector<UsedLora>& used) {
  ordered_json out = ordered_json::array();
  for (auto& lora : used) {
    ordered_json row{{"name", lora.tag.name}, {"weight", lora.tag.denoiser}};
    if (lora.tag.text_encoders != lora.tag.denoiser) row["text_encoders"] = lora.tag.text_encoders;
    row["hash"] = lora.hash;
    row["path"] = lora.path;
    if (lora.in_prompt) row["in_prompt"] = true;
    out.push_back(std::move(row));
  }
  return out;
}

std::vector<UsedLora> loras_of(const ordered_json& json) {
  std::vector<UsedLora> out;
  for (auto& row : json.get<std::vector<ordered_json>>()) {
    UsedLora lora;
    lora.tag.name = row.at("name").get<std::string>();
    lora.tag.denoiser = lora.tag.text_encoders = row.at("weight").get<double>();
    if (row.contains("text_encoders")) lora.tag.text_encoders = row["text_encoders"].get<double>();
    lora.hash = row.at("hash").get<std::string>();
    lora.path = row.at("path").get<std::string>();
    lora.in_prompt = row.contains("in_prompt") && row["in_prompt"].get<bool>();
    out.push_back(std::move(lora));
  }
  return out;
}

std::string added_tags(const std::vector<UsedLora>& used, const std::string& prompt) {
  const std::vector<LoraTag> there = diffusion::take_lora_tags(prompt).tags;
  std::string out;
  for (auto& lora : used) {
    if (lora.in_prompt && std::find(there.begin(), there.end(), lora.tag) != there.end()) continue;
    LoraTag tag = lora.tag;
    tag.name = plain_name(tag.name);
    out += " " + text_of(tag);
  }
  return out;
}

std::string hashes_text(const std::vector<UsedLora>& used) {
  std::vector<std::string> parts;
  for (auto& lora : used) {
    std::string part = plain_name(lora.tag.name) + ": " + lora.hash;
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(std::move(part));
  }
  std::string out;
  for (auto& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

}  // namespace sf::cli
