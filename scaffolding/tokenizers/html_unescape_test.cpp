#include "scaffolding/tokenizers/html_unescape.h"

#include <random>

#include <gtest/gtest.h>

#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {
namespace {

// The right-hand sides are Python's html.unescape.
TEST(HtmlUnescape, gives_what_python_gives) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"no reference & none here", "no reference & none here"},
      {"&lt;b&gt; &amp;amp; &quot;", "<b> &amp; \""},
      {"&#60;&#x3C;&#X3c;&#60 ", "<<<< "},
      {"&notit; &notin;", "\xC2\xACit; \xE2\x88\x89"},
      {"&ampere &copy2",
       "&ere \xC2\xA9"
       "2"},
      {"&bne;", "=\xE2\x83\xA5"},
      {"&#0;&#x80;&#x9f;&#xD800;&#x110000;&#99999999999999999999;",
       "\xEF\xBF\xBD\xE2\x82\xAC\xC5\xB8\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"a&#1;b&#xFFFE;c&#x7f;d&#13;e&#12;f", "abcd\re\ff"},
      {"&#; &#x; &#xg; &; &", "&#; &#x; &#xg; &; &"},
      {"&unknown; &caf\xC3\xA9;", "&unknown; &caf\xC3\xA9;"},
      {"&CounterClockwiseContourIntegral; &CounterClockwiseContourIntegra;",
       "\xE2\x88\xB3 &CounterClockwiseContourIntegra;"},
      {"&&lt;lt;", "&<lt;"},
  };
  for (auto& [text, want] : cases) EXPECT_EQ(html_unescape(text), want) << text;
}

TEST(HtmlUnescape, takes_any_text) {
  std::mt19937 rng(3);
  const char* parts[] = {"&", "#", "x", ";", "lt", "amp", "9", "F", "\xC3\xA9", " ", "CounterClockwise", "not"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint32_t n = uint32_t(rng() % 12); n > 0; --n) text += parts[rng() % std::size(parts)];
    require_utf8(html_unescape(text), "html_unescape");
  }
}

}  // namespace
}  // namespace sf::tokenizers
