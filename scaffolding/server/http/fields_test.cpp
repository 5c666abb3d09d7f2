#include "scaffolding/server/http/fields.h"

#include <gtest/gtest.h>

namespace sf::server {

// The time that finding near names takes is bounded, however many names a stranger sends.
TEST(Fields, OfManyUnknownNamesTheFirstAreTold) {
  const Fields fields{{field("prompt", FieldKind::Text)}};
  json body{{"promt", "a"}};
  for (int i = 0; i < 100'000; ++i) body["x" + std::to_string(i)] = 1;
  const auto errors = check_fields(body, fields);
  ASSERT_EQ(errors.size(), 20u);
  EXPECT_EQ(errors[0].name, "promt");
  EXPECT_NE(errors[0].reason.find("did you mean 'prompt'?"), std::string::npos) << errors[0].reason;
  for (auto& e : errors) EXPECT_EQ(e.kind, "unknown");
}

}  // namespace sf::server
