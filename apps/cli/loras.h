// LoRAs of the commands that make pictures: --lora, --lora-dir and <lora:name:0.8> in prompts, and what is said of them
// in a picture's text, by which --like finds the same files again.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "scaffolding/diffusion/pipelines/lora.h"
#include "scaffolding/diffusion/pipelines/lora_tags.h"

namespace sf::cli {

struct UsedLora {
  diffusion::LoraTag tag;  // the name it was asked for by, and the weights
  std::string path, hash;  // the hash is "" until hash_loras()
  bool in_prompt = false;  // a tag of the prompt, not --lora
};

struct LoraSettings {
  std::vector<std::string> given, folders;  // --lora and --lora-dir, as they were written
  std::vector<UsedLora> repeated;           // of the picture that --like names; those of --lora where none is given
  bool repeats_prompt = true;               // of that picture too
  std::vector<UsedLora> used;               // find_loras() fills it in
};

void add_lora_options(CLI::App& command, LoraSettings& settings);

// Finds the file of everything that --lora and the tags name, before a model is loaded. A LoRA that a tag names has the
// tag's weights and not --lora's, as in the web UI. ValueError saying where was looked, and what there is, for a name
// that no file has or more than one, and for a file that is not the one that a repeated picture was made with.
void find_loras(LoraSettings& settings, const std::vector<diffusion::LoraTag>& tags);
// One for each file: its weights are summed. ValueError for two files of one name.
std::vector<diffusion::LoraSource> sources_of(const std::vector<UsedLora>& used);

void hash_loras(std::vector<UsedLora>& used);  // reads files that do not say their hash
nlohmann::ordered_json loras_json(const std::vector<UsedLora>& used);
// nlohmann's exception for another kind of JSON.
std::vector<UsedLora> loras_of(const nlohmann::ordered_json& json);

// For the web UI's text: tags of what the prompt does not name, each behind a space; `style: 0123456789ab, ink: ...`.
std::string added_tags(const std::vector<UsedLora>& used, const std::string& prompt);
std::string hashes_text(const std::vector<UsedLora>& used);

}  // namespace sf::cli
