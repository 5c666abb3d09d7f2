#include "scaffolding/diffusion/pipelines/option_fields.h"

#include <charconv>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

OptionFields operator+(OptionFields a, const OptionFields& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace {

template <class T> T number_of(const std::string& who, const std::string& kind, std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && !text.empty(), who, ": must be ", kind,
           ", got '", text, "'");
  return value;
}

template <class T> std::vector<T> numbers_of(const std::string& who, const std::string& kind, std::string_view text) {
  std::vector<T> out;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find(',', at), text.size());
    out.push_back(number_of<T>(who, kind, text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

PixelPair pair_of(const std::string& who, const std::string& kind, std::string_view text) {
  auto numbers = numbers_of<int64_t>(who, kind, text);
  SF_CHECK(numbers.size() == 2, who, ": must be ", kind, ", got '", text, "'");
  return {numbers[0], numbers[1]};
}

template <class... F> struct Overloaded : F... { using F::operator()...; };
template <class... F> Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::string kind_of(const OptionField& field) {
  return std::visit(
      Overloaded{[](bool*) { return "true or false"; }, [](int64_t*) { return "a whole number"; },
                 [](std::optional<int64_t>*) { return "a whole number"; }, [](double*) { return "a number"; },
                 [](std::optional<double>*) { return "a number"; }, [](std::vector<std::string>*) { return "text"; },
                 [](std::optional<std::vector<double>>*) { return "numbers with commas between"; },
                 [](std::vector<double>*) { return "numbers with commas between"; },
                 [](std::vector<int64_t>*) { return "whole numbers with commas between"; },
                 [](PixelPair*) { return "two whole numbers with a comma between"; },
                 [](std::optional<PixelPair>*) { return "two whole numbers with a comma between"; },
                 [](const ChoiceField&) { return "a name"; }, [](auto*) { return ""; }},
      field.place);
}

bool takes_text(const OptionField& field) { return !kind_of(field).empty(); }

void set_from_text(const std::string& who, const OptionField& field, const std::string& text) {
  const std::string kind = kind_of(field);
  std::visit(Overloaded{[&](bool* v) {
                          SF_CHECK(text == "true" || text == "false", who, ": must be ", kind, ", got '", text, "'");
                          *v = text == "true";
                        },
                        [&](int64_t* v) { *v = number_of<int64_t>(who, kind, text); },
                        [&](std::optional<int64_t>* v) { *v = number_of<int64_t>(who, kind, text); },
                        [&](double* v) { *v = number_of<double>(who, kind, text); },
                        [&](std::optional<double>* v) { *v = number_of<double>(who, kind, text); },
                        [&](std::vector<std::string>* v) { *v = {text}; },
                        [&](std::optional<std::vector<double>>* v) { *v = numbers_of<double>(who, kind, text); },
                        [&](std::vector<double>* v) { *v = numbers_of<double>(who, kind, text); },
                        [&](std::vector<int64_t>* v) { *v = numbers_of<int64_t>(who, kind, text); },
                        [&](PixelPair* v) { *v = pair_of(who, kind, text); },
                        [&](std::optional<PixelPair>* v) { *v = pair_of(who, kind, text); },
                        [&](const ChoiceField& v) { v.set(v.place, text); },
                        [&](auto*) { fail<NotSupported>(who, ": cannot be given as text"); }},
             field.place);
}

const OptionField* AnyOptions::find(std::string_view name) const {
  for (auto& f : fields_)
    if (f.name == name) return &f;
  return nullptr;
}

void AnyOptions::no_such_member(const char* name) const {
  fail("pipeline: its options have no ", name, " of that type");
}

}  // namespace sf::diffusion
