#include "scaffolding/diffusion/pipelines/lora_tags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";
constexpr size_t kPlaces = 3;  // the text encoders' weight, the denoiser's, and a rank

std::string_view stripped(std::string_view s) {
  s.remove_prefix(std::min(s.find_first_not_of(kSpaces), s.size()));
  return s.substr(0, s.find_last_not_of(kSpaces) + 1);
}

double weight_of(std::string_view text, const std::string& where) {
  const std::string_view number = stripped(text);
  const char *begin = number.data() + (number.starts_with('+') && !number.starts_with("+-")),
             *end = number.data() + number.size();
  double value = 0;
  auto [stop, error] = std::from_chars(begin, end, value);
  // Products are in float32, in which a larger one would be infinite.
  SF_CHECK(error == std::errc() && stop == end && std::isfinite(float(value)), where,
           ": a weight must be a number, as in name:0.8, name:0.5:0.8 or name:te=0.5:unet=0.8, got '", text, "'");
  return value;
}

}  // namespace

LoraTag lora_tag(std::string_view name, std::string_view weights, const std::string& where) {
  LoraTag tag;
  tag.name = stripped(name);
  SF_CHECK(!tag.name.empty(), where, ": has no name; a tag is <lora:name:0.8>");
  std::optional<double> places[kPlaces], te, unet;
  bool cuts_ranks = false;
  size_t place = 0;
  for (bool more = !weights.empty(); more;) {
    const size_t colon = weights.find(':');
    const std::string_view part = weights.substr(0, colon);
    more = colon != weights.npos;
    weights.remove_prefix(more ? colon + 1 : weights.size());
    const size_t equals = part.find('=');
    if (equals == part.npos) {
      SF_CHECK(place < kPlaces, where, ": takes two weights, the text encoders' and the denoiser's, got '", part,
               "' besides");
      places[place++] = weight_of(part, where);
      continue;
    }
    const std::string_view key = stripped(part.substr(0, equals));
    const double value = key == "te" || key == "unet" ? weight_of(part.substr(equals + 1), where) : 0;
    if (key == "te") te = value;
    else if (key == "unet") unet = value;
    else if (key == "dyn") cuts_ranks = true;
    else fail(where, ": there is no '", key, "='; weights are te= (text encoders) and unet= (denoiser)");
  }
  SF_CHECK_AS(NotSupported, !cuts_ranks && !places[2], where,
              ": ranks cannot be cut here; leave the third weight (dyn=) out");
  tag.text_encoders = te.value_or(places[0].value_or(1));
  tag.denoiser = unet.value_or(places[1].value_or(tag.text_encoders));
  return tag;
}

TaggedPrompt take_lora_tags(std::string_view prompt) {
  constexpr std::string_view kBegin[] = {"<lora:", "<lyco:"};
  constexpr size_t kBeginSize = 6;
  TaggedPrompt out;
  for (size_t at = 0;;) {
    size_t found = at;
    const auto begins = [&](std::string_view begin) { return prompt.substr(found).starts_with(begin); };
    do found = prompt.find('<', found);
    while (found != prompt.npos && std::none_of(std::begin(kBegin), std::end(kBegin), begins) && ++found);
    const size_t end = found == prompt.npos ? found : prompt.find('>', found);
    if (end == prompt.npos) {  // nothing behind is closed either
      out.text += prompt.substr(at);
      return out;
    }
    if (end == found + kBeginSize) {  // "<lora:>"
      out.text += prompt.substr(at, end + 1 - at);
    } else {
      const std::string_view inside = prompt.substr(found + kBeginSize, end - found - kBeginSize);
      const size_t colon = inside.find(':');
      const std::string where = "prompt: " + std::string(prompt.substr(found, end + 1 - found));
      SF_CHECK(colon == inside.npos || colon + 1 < inside.size(), where, ": has a ':' and no weight behind it");
      out.text += prompt.substr(at, found - at);
      out.tags.push_back(
          lora_tag(inside.substr(0, colon), colon == inside.npos ? "" : inside.substr(colon + 1), where));
    }
    at = end + 1;
  }
}

std::string text_of(const LoraTag& tag) {
  std::ostringstream out;
  out << "<lora:" << tag.name << ":" << tag.text_encoders;
  if (tag.denoiser != tag.text_encoders) out << ":" << tag.denoiser;
  out << ">";
  return out.str();
}

}  // namespace sf::diffusion
