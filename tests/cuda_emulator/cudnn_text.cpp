// Plans as text, as cuDNN's JSON of them: an engine's configuration with the graph that it is for. A text of another
// version, and one that was changed, are refused.
#include <sstream>

#include "cudnn_values.h"

namespace cudnn_emulator {

namespace {

constexpr char kHead[] = "{\"cudnn_emulator\": 91900, ";

std::string sum_of(const std::string& text) { return std::to_string(std::hash<std::string>()(text)); }

struct Writer {
  std::map<const Object*, int> numbers;
  std::ostringstream lines;

  // Parts come before what they are parts of; one that several share comes once.
  int number(const std::shared_ptr<Object>& o) {
    if (auto at = numbers.find(o.get()); at != numbers.end()) return at->second;
    std::ostringstream line;
    int attributes = 0;
    o->each([&](Attribute a, Type type, int64_t count, const std::string& bytes, const auto& parts) {
      if (type == Type::Handle) return;
      ++attributes;
      line << ' ' << int(a) << ' ' << int(type) << ' ' << count;
      for (unsigned char c : bytes) line << ' ' << int(c);
      for (auto& part : parts) line << ' ' << number(part);
    });
    lines << int(o->kind) << ' ' << attributes << line.str() << ' ';
    return numbers.emplace(o.get(), int(numbers.size())).first->second;
  }
};

}  // namespace

std::string text_of(const std::shared_ptr<Object>& config) {
  Writer w;
  w.number(config);
  std::string body = std::to_string(w.numbers.size()) + ' ' + w.lines.str();
  return kHead + sum_of(body) + '\n' + body;
}

std::shared_ptr<Object> config_of(const std::string& text) {
  const size_t line = text.find('\n'), head = sizeof kHead - 1;
  if (line == text.npos || text.compare(0, head, kHead) != 0) return nullptr;
  const std::string body = text.substr(line + 1);
  if (text.substr(head, line - head) != sum_of(body)) return nullptr;
  std::istringstream words(body);
  auto next = [&] {
    int64_t x = 0;
    words >> x;
    return x;
  };
  std::vector<std::shared_ptr<Object>> all(static_cast<size_t>(next()));
  for (auto& o : all) {
    o = std::make_shared<Object>(Kind(next()));
    for (int64_t left = next(); left > 0; --left) {
      const auto a = Attribute(next());
      const auto type = Type(next());
      const int64_t count = next();
      if (type == Type::Descriptor) {
        o->forget(a);
        for (int64_t i = 0; i < count; ++i) o->keep(a, all.at(size_t(next())));
        continue;
      }
      std::string bytes(bytes_of(type) * size_t(count), '\0');
      for (char& c : bytes) c = char(next());
      o->keep(a, type, count, bytes.data());
    }
    o->finalized = true;
  }
  return all.empty() ? nullptr : all.back();
}

}  // namespace cudnn_emulator
