#include "scaffolding/server/http/guard.h"

#include <chrono>

#include "scaffolding/core/error.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/test_folder.h"

namespace sf::server {
namespace {

Request with(Headers headers, const std::string& method = "GET") {
  Request r;
  r.method = method, r.headers = std::move(headers);
  return r;
}

TEST(Guard, OnlyItsOwnNamesReachALoopbackServer) {
  Guard g(GuardSettings{.tokens = {}, .loopback = true, .hosts = {"box.lan"}, .origins = {}});
  for (const char* good : {"127.0.0.1:7860", "localhost", "LOCALHOST:1", "[::1]:7860", "box.lan:7860"})
    EXPECT_FALSE(g.check_origin(with({{"host", good}}))) << good;
  for (const char* bad : {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "192.168.0.1"})
    EXPECT_TRUE(g.check_origin(with({{"host", bad}}))) << bad;
}

TEST(Guard, PagesOfOtherOriginsAreRefused) {
  Guard g(GuardSettings{.tokens = {}, .loopback = true, .hosts = {}, .origins = {"https://good.example"}});
  auto origin = [](const char* o) { return with({{"host", "localhost:7860"}, {"origin", o}}, "POST"); };
  EXPECT_FALSE(g.check_origin(origin("http://localhost:7860")));
  EXPECT_FALSE(g.check_origin(origin("https://good.example")));
  for (const char* bad : {"http://evil.example", "null", "http://localhost:80", "https://good.example.evil.example"})
    EXPECT_TRUE(g.check_origin(origin(bad))) << bad;
  EXPECT_EQ(g.cors(origin("https://good.example"))[0].second, "https://good.example");
  EXPECT_TRUE(g.cors(origin("http://evil.example")).empty());
  EXPECT_TRUE(Guard::is_preflight(
      with({{"origin", "https://good.example"}, {"access-control-request-method", "POST"}}, "OPTIONS")));
}

TEST(Guard, TokensAreTakenAsBearerAndBasic) {
  Guard g(GuardSettings{.tokens = {{"anna", hash_of_token("t1"), false}, {"root", hash_of_token("t2"), true}}});
  auto who = [&](const std::string& authorization, Access access = Access::User) {
    return g.caller(with({{"authorization", authorization}}), access).name;
  };
  EXPECT_EQ(who("Bearer t1"), "anna");
  EXPECT_EQ(who("bearer t1"), "anna");
  EXPECT_EQ(who("Basic " + io::to_base64("whoever:t2")), "root");
  EXPECT_EQ(who("Bearer t2", Access::Admin), "root");
  EXPECT_EQ(who("", Access::Open), "");
  EXPECT_THROW(who("Bearer t1", Access::Admin), ApiError);
  for (const char* bad : {"", "Bearer", "Bearer ", "Bearer t3", "t1", "Basic !!!", "Basic dDE=", "Digest t1"})
    EXPECT_THROW(who(bad), ApiError) << bad;
  // Where there are none, whatever is sent passes.
  EXPECT_TRUE(Guard({}).caller(with({{"authorization", "Bearer x"}}), Access::Admin).admin);
}

TEST(Guard, ASessionIsGoodAsLongAsItsToken) {
  const Token anna{"anna", hash_of_token("t1"), false}, bert{"bert", hash_of_token("t2"), true};
  auto guard = [](std::vector<Token> tokens, const char* secret) {
    GuardSettings s{.tokens = std::move(tokens)};
    s.secret = secret;
    return Guard(std::move(s));
  };
  Guard g = guard({anna, bert}, "secret");
  const double now = 4e9;
  const std::string value = g.session_of("t1", now);
  auto who = [](Guard& at, const std::string& cookies) {
    return at.caller(with({{"cookie", cookies}}), Access::User).name;
  };
  const std::string cookie = std::string(Guard::kSessionCookie) + "=" + value;
  EXPECT_EQ(who(g, cookie), "anna");
  EXPECT_EQ(who(g, "a=b; " + cookie + "; c=d"), "anna");
  EXPECT_THROW(g.session_of("t3", now), ApiError);
  EXPECT_THROW(who(g, std::string(Guard::kSessionCookie) + "=" + g.session_of("t1", 0)), ApiError) << "it is over";
  EXPECT_THROW(g.caller(with({{"cookie", cookie}}), Access::Admin), ApiError);
  std::string later = cookie, cut = cookie.substr(0, cookie.size() - 1);
  later[later.find('.') + 1] = '5';
  const std::string of_bert = std::string(Guard::kSessionCookie) + "=" + bert.hash.substr(0, 16) + value.substr(16);
  for (auto& bad : {later, cut, of_bert, std::string(Guard::kSessionCookie) + "=", cookie + "0", "x" + cookie,
                    std::string(Guard::kSessionCookie) + "=..", std::string(Guard::kSessionCookie) + "=.99999999999."})
    EXPECT_THROW(who(g, bad), ApiError) << bad;
  Guard without = guard({bert}, "secret"), other = guard({anna, bert}, "another");
  EXPECT_THROW(who(without, cookie), ApiError);
  EXPECT_THROW(who(other, cookie), ApiError);
}

TEST(Guard, JobsOfATokenAreCounted) {
  GuardSettings s;
  s.jobs_per_minute = 2;
  Guard g(std::move(s));
  const auto now = std::chrono::steady_clock::now();
  g.count_job({"a"}, now), g.count_job({"a"}, now), g.count_job({"b"}, now);
  try {
    g.count_job({"a"}, now);
    FAIL();
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 429);
    EXPECT_EQ(e.headers[0], (std::pair<std::string, std::string>("Retry-After", "30")));
  }
  g.count_job({"a"}, now + std::chrono::seconds(31));
}

class TokensTest : public io::TestFolder {};

TEST_F(TokensTest, FilesAreReadAndWhatIsWrongIsNamed) {
  const std::string hash = hash_of_token("t");
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_NE(random_token(), random_token());
  EXPECT_EQ(random_token().size(), 43u);
  const auto tokens = read_tokens(write("t", "# who\nanna " + hash + "\n\nroot " + hash + " admin # of all\n"));
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_TRUE(tokens[1].admin && !tokens[0].admin);
  SF_EXPECT_ERROR(ValueError, "line 2", read_tokens(write("a", "a " + hash + "\nb abc\n")));
  SF_EXPECT_ERROR(ValueError, "comes twice", read_tokens(write("b", "a " + hash + "\na " + hash + "\n")));
  SF_EXPECT_ERROR(ValueError, "no token", read_tokens(write("c", "\n")));
  SF_EXPECT_ERROR(ValueError, "cannot read", read_tokens(path("none")));
}

}  // namespace
}  // namespace sf::server
