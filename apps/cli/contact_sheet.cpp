#include "apps/cli/contact_sheet.h"

#include <algorithm>

#include "apps/cli/bitmap_font.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::cli {

namespace {

constexpr int64_t kLetter = 6, kLine = 10, kLines = 4, kMargin = 8;

// Words in lines of at most `width` letters; a longer word is broken,
// and what does not fit into kLines ends in two dots.
std::vector<std::string> lines_of(const std::string& text, size_t width) {
  std::vector<std::string> lines{""};
  std::string word;
  auto put = [&] {
    while (!word.empty()) {
      size_t room = lines.back().empty()              ? width
                    : lines.back().size() + 1 < width ? width - lines.back().size() - 1
                                                      : 0;
      if (word.size() <= room || lines.back().empty()) {
        std::string part = word.substr(0, room);
        lines.back() += (lines.back().empty() ? "" : " ") + part;
        word.erase(0, part.size());
      }
      if (!word.empty()) lines.emplace_back();
    }
  };
  for (char c : text) {
    if (c == ' ') put();
    else word += c;
  }
  put();
  if (lines.size() > size_t(kLines)) {
    lines.resize(size_t(kLines));
    std::string& last = lines.back();
    last.resize(std::min(last.size(), width - 2));
    last += "..";
  }
  return lines;
}

}  // namespace

Tensor contact_sheet(const std::vector<SheetPicture>& pictures, int64_t columns) {
  SF_CHECK(!pictures.empty() && columns > 0, "contact_sheet: needs pictures and columns, got ", pictures.size(),
           " and ", columns);
  const int64_t H = pictures[0].picture.size(1), W = pictures[0].picture.size(2);
  columns = std::min(columns, int64_t(pictures.size()));
  const int64_t rows = (int64_t(pictures.size()) + columns - 1) / columns, cell_h = H + 4 + kLines * kLine + kMargin,
                cell_w = W + kMargin;
  Tensor sheet = full({3, rows * cell_h + kMargin, columns * cell_w + kMargin}, 255, kUInt8);
  uint8_t* out = sheet.data<uint8_t>();
  const int64_t width = sheet.size(2), plane = sheet.size(1) * width;
  for (size_t i = 0; i < pictures.size(); ++i) {
    Tensor picture = pictures[i].picture.contiguous();
    SF_CHECK(picture.shape() == (Shape{3, H, W}), "contact_sheet: pictures must have one size, got ", picture.shape());
    const int64_t top = kMargin + int64_t(i) / columns * cell_h, left = kMargin + int64_t(i) % columns * cell_w;
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < H; ++y)
        std::copy_n(picture.data<uint8_t>() + (c * H + y) * W, W, out + c * plane + (top + y) * width + left);
    auto lines = lines_of(pictures[i].caption, size_t(std::max<int64_t>(3, W / kLetter)));
    for (size_t l = 0; l < lines.size(); ++l)
      for (size_t k = 0; k < lines[l].size(); ++k)
        for (int64_t x = 0; x < 5; ++x)
          for (int64_t y = 0; y < 8; ++y)
            if (letter(lines[l][k])[size_t(x)] >> y & 1)
              for (int64_t c = 0; c < 3; ++c)
                out[c * plane + (top + H + 4 + int64_t(l) * kLine + y) * width + left + int64_t(k) * kLetter + x] = 40;
  }
  return sheet;
}

}  // namespace sf::cli
