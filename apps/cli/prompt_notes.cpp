#include "apps/cli/prompt_notes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <set>
#include <sstream>
#include <string_view>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/diffusion/pipelines/lora_tags.h"

namespace sf::cli {

namespace {

constexpr size_t kShown = 60;      // bytes of what was found
constexpr int64_t kTimes = 4;      // the trained area
constexpr double kMaxWeight = 20;  // (Psalm:119) has none

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string shown(std::string_view text) {
  if (text.size() <= kShown) return std::string(text);
  size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // within a character
  return std::string(text.substr(0, end)) + "...";
}

bool is_escaped(std::string_view text, size_t at) {
  size_t backslashes = 0;
  while (backslashes < at && text[at - 1 - backslashes] == '\\') ++backslashes;
  return backslashes % 2 == 1;
}

// Whether it is a weight that stands between the colon and a closing bracket: no clock ("10:30") and no verse ("3:16").
bool is_weight(std::string_view text, size_t colon, size_t end) {
  if (is_digit(text[colon - 1])) return false;
  std::string_view number = text.substr(colon + 1, end - colon - 1);
  while (!number.empty() && is_space(number.front())) number.remove_prefix(1);
  while (!number.empty() && is_space(number.back())) number.remove_suffix(1);
  if (number.starts_with('+')) number.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && stop == number.data() + number.size() && std::abs(value) <= kMaxWeight;
}

// The first "(word:1.3)", or "".
std::string_view weighted_part(std::string_view text) {
  std::vector<size_t> open;
  size_t colon = 0;  // the last one
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':') colon = i;
    if ((text[i] != '(' && text[i] != ')') || is_escaped(text, i)) continue;
    if (text[i] == '(') {
      open.push_back(i);
    } else if (!open.empty()) {
      const size_t begin = open.back();
      open.pop_back();
      if (colon > begin + 1 && is_weight(text, colon, i)) return text.substr(begin, i + 1 - begin);
    }
  }
  return "";
}

// The first "<lora:" and its like in any case, up to its end, or "".
std::string_view tag_like(std::string_view text) {
  for (size_t at = 0; (at = text.find('<', at)) != text.npos; ++at) {
    std::string begin(text.substr(at, 12));
    std::erase_if(begin, is_space);
    std::transform(begin.begin(), begin.end(), begin.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    for (std::string_view known : {"<lora:", "<lyco:", "<hypernet:"})
      if (begin.starts_with(known)) return text.substr(at, std::min(text.find('>', at), text.size() - 1) + 1 - at);
  }
  return "";
}

}  // namespace

std::vector<std::string> prompt_notes(const std::string& prompt, bool negative, bool weighted, bool takes_weights) {
  std::vector<std::string> notes;
  const std::string where = negative ? "the negative prompt" : "the prompt";
  const std::string text = negative ? prompt : diffusion::take_lora_tags(prompt).text;
  const auto found = [&](std::string_view part) {
    return "'" + printable(shown(part)) + "' in " + where + " is taken as plain words";
  };
  if (const std::string_view part = weighted_part(text); !weighted && !part.empty())
    notes.push_back(found(part) + (takes_weights ? "; --prompt-syntax weighted makes its weight count"
                                                 : ": this model takes no weights"));
  if (const std::string_view tag = tag_like(text); !tag.empty())
    notes.push_back(found(tag) + (negative                ? "; a LoRA counts in the prompt, or by --lora"
                                  : tag.find("net:") < 12 ? ": hypernetworks are not here"
                                                          : "; a LoRA's tag is <lora:name:0.8>, or give it by --lora"));
  return notes;
}

std::string size_note(int64_t height, int64_t width, int64_t trained_height, int64_t trained_width, int64_t multiple) {
  const double area = double(height) * double(width), trained = double(trained_height) * double(trained_width);
  if (!(trained > 0) || area < kTimes * trained) return "";
  // The same shape in the area that it knows.
  const int64_t step = std::max<int64_t>(multiple, 1);
  const auto fitting = [&](int64_t side) {
    return std::max<int64_t>(step, int64_t(double(side) * std::sqrt(trained / area)) / step * step);
  };
  std::ostringstream out;
  out << "the model was trained for " << trained_width << " x " << trained_height << " pixels, and " << width << " x "
      << height << " is " << int64_t(area / trained) << " times as many, in which things may come twice; ask for "
      << fitting(width) << " x " << fitting(height) << ", then upscale";
  return out.str();
}

void tell_notes(const GenerationSettings& s, const std::vector<std::string>& prompts,
                const diffusion::DiffusionPipeline& pipeline, const std::map<std::string, Tensor>& given) {
  const bool weighted = s.prompt_syntax != "plain", takes_weights = pipeline.make_options().find("prompt_syntax");
  std::vector<std::string> notes;
  const auto add = [&](const std::string& text, bool negative) {
    for (auto& note : prompt_notes(text, negative, weighted, takes_weights)) notes.push_back(note);
  };
  for (auto& prompt : prompts) add(prompt, false);
  add(s.negative_prompt, true);
  auto [height, width] = pipeline.size(s.height, s.width);
  if (auto image = given.find("image"); image != given.end())
    height = image->second.size(-2), width = image->second.size(-1);
  const auto trained = pipeline.size();
  notes.push_back(size_note(height, width, trained.height, trained.width, pipeline.vae_scale_factor()));
  static std::set<std::string> told;  // of a list of prompts, what they share is said once
  for (auto& note : notes)
    if (!note.empty() && told.insert(note).second) std::cerr << "scaffolding: " << note << "\n";
}

}  // namespace sf::cli
