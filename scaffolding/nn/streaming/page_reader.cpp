#include "scaffolding/nn/streaming/page_reader.h"

#include <algorithm>

#include "scaffolding/io/read_ahead.h"

namespace sf::nn {

void PageReader::start(std::vector<Range> ranges) {
  stop();
  if (ranges.empty()) return;
  ends_ = false;
  thread_ = std::thread([this, ranges = std::move(ranges)] {
    constexpr uint64_t kAtOnce = 8 << 20;  // the wait of stop(), and of whoever wants to map memory meanwhile
    for (auto [data, bytes] : ranges)
      for (uint64_t at = 0; at < bytes; at += kAtOnce)
        if (ends_ || !io::read_pages(data + at, std::min(kAtOnce, bytes - at))) return;
  });
}

void PageReader::stop() {
  if (!thread_.joinable()) return;
  ends_ = true;
  thread_.join();
}

}  // namespace sf::nn
