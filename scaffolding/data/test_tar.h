// ustar archives as text, for tests. Functions only.
#pragma once
#include <cstdio>
#include <cstring>
#include <string>

namespace sf::data {

// One entry of a ustar archive.
inline std::string tar_entry(const std::string& name, const std::string& content, char type = '0',
                             const std::string& prefix = "") {
  std::string h(512, '\0');
  std::memcpy(h.data(), name.data(), std::min<size_t>(name.size(), 100));
  std::snprintf(h.data() + 124, 12, "%011o", unsigned(content.size()));
  h[156] = type;
  std::memcpy(h.data() + 257, "ustar\00000", 8);
  std::memcpy(h.data() + 345, prefix.data(), prefix.size());
  std::memset(h.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (char c : h) sum += uint8_t(c);
  std::snprintf(h.data() + 148, 8, "%06o", sum);
  return h + content + std::string((512 - content.size() % 512) % 512, '\0');
}
inline const std::string kTarEnd(1024, '\0');

}  // namespace sf::data
