#include "scaffolding/server/http/router.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"

namespace sf::server {
namespace {

// What was answered.
class Kept : public Exchange {
 public:
  void respond(Response r) override { response = std::move(r); }
  void begin_events(Headers) override {}
  void send(std::string) override {}
  void end() override {}
  void on_leave(std::function<void()>) override {}
  bool has_left() const override { return false; }
  json body() const { return json::parse(response.body); }
  Response response{.status = 0};
};

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    using K = FieldKind;
    router
        .add("POST", "/api/v1/things/{id}", "",
             [](Call& c, const Answer& a) {
               a->respond(json_response({{"id", c.path.at("id")}, {"body", c.body}, {"query", c.query}}));
             })
        .takes({.all = {field("text", K::Text).at_most(5).need(), field("n", K::Whole).range(1, 10),
                        field("x", K::Number), field("on", K::Flag), field("names", K::Texts).at_most(2),
                        field("kind", K::Text).one_of({"a", "b"})}})
        .asks({field("limit", K::Whole).range(1, 5)});
    router.add("GET", "/api/v1/things/{id}", "", [](Call&, const Answer&) { throw ValueError("things: no"); });
    router.add("POST", "/v1/make", "", [](Call&, const Answer&) { throw std::runtime_error("a handler's secret"); })
        .takes({.all = {field("n", K::Whole).range(1, 10)}});
    router.add("POST", "/v1/form", "", [](Call& c, const Answer& a) { a->respond(json_response(c.body)); })
        .takes({.all = {field("text", K::Text)}}, BodyKind::Form)
        .files({"image"});
    router.add("POST", "/sdapi/v1/make", "", [](Call& c, const Answer& a) { a->respond(json_response(c.body)); })
        .takes({.all = {field("n", K::Whole).range(1, 10)}, .others = true});
  }
  std::shared_ptr<Kept> ask(const std::string& method, const std::string& path, const std::string& body = "",
                            std::map<std::string, std::string> query = {}, const std::string& type = "") {
    Request r{.method = method, .target = path, .path = path, .query = std::move(query)};
    r.body = body;
    if (!type.empty()) r.headers = {{"content-type", type}};
    auto kept = std::make_shared<Kept>();
    router.dispatch(router.find(method, path), r, {}, kept);
    return kept;
  }
  Router router;
};

TEST_F(RouterTest, FieldsArriveWithTheirTypes) {
  const auto a = ask("POST", "/api/v1/things/7/", R"({"text": "abc", "n": 3.0, "x": 1, "on": true, "names": ["p"],
                     "kind": null})",
                     {{"limit", "4"}});
  EXPECT_EQ(a->response.status, 200) << a->response.body;
  EXPECT_EQ(a->body(), json::parse(R"({"id": "7", "query": {"limit": 4},
                                       "body": {"text": "abc", "n": 3, "x": 1, "on": true, "names": ["p"]}})"));
}

TEST_F(RouterTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({})", "text: is needed"},
      {R"({"text": 3})", "text: must be text, got 3"},
      {R"({"text": "abcdef"})", "text: is too long"},
      {R"({"text": "a", "n": 0})", "n: must be from 1 to 10, got 0"},
      {R"({"text": "a", "n": 1.5})", "n: must be a whole number, got 1.5"},
      {R"({"text": "a", "n": true})", "n: must be a whole number"},
      {R"({"text": "a", "n": 18446744073709551615})", "n: must be a whole number"},
      {R"({"text": "a", "names": ["a", "b", "c"]})", "names: is too long"},
      {R"({"text": "a", "names": [1]})", "names: must be a list of texts"},
      {R"({"text": "a", "kind": "c"})", "kind: must be one of a, b, got 'c'"},
      {R"({"text": "a", "nammes": []})", "did you mean 'names'"}};
  for (auto& [body, words] : kCases) {
    const auto a = ask("POST", "/api/v1/things/7", body);
    EXPECT_EQ(a->response.status, 422) << body;
    EXPECT_NE(a->body()["error"]["message"].get<std::string>().find(words), std::string::npos) << a->response.body;
  }
  EXPECT_EQ(ask("POST", "/api/v1/things/7", R"({"text": "a"})", {{"limit", "six"}})->response.status, 422);
}

TEST_F(RouterTest, BodiesThatAreNoneAreRefused) {
  std::string deep = R"({"text": )";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  for (const std::string& bad : {std::string("{"), std::string("[]"), std::string("3"), std::string("{\"a\": NaN}"),
                                 std::string("{\"text\": \"\xff\"}"), std::string("{\"x\": 1e999}"), deep,
                                 std::string(R"({"text": "a", "text": "b"})")})
    EXPECT_EQ(ask("POST", "/api/v1/things/7", bad)->response.status, 400) << bad.substr(0, 40);
  // which a page of another origin may send without asking
  EXPECT_EQ(ask("POST", "/api/v1/things/7", R"({"text": "a"})", {}, "text/plain")->response.status, 415);
}

TEST_F(RouterTest, FieldsOfAFormAreUtf8) {
  auto status = [&](const std::string& text) {
    const std::string form = "--b\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\n" + text + "\r\n--b--\r\n";
    return ask("POST", "/v1/form", form, {}, "multipart/form-data; boundary=b")->response.status;
  };
  EXPECT_EQ(status("\xc3\xa4"), 200);
  EXPECT_EQ(status("\x89PNG"), 400);
}

TEST_F(RouterTest, EachApiHasItsOwnErrors) {
  EXPECT_EQ(ask("GET", "/nowhere")->response.status, 404);
  const auto method = ask("DELETE", "/api/v1/things/1");
  EXPECT_EQ(method->response.status, 405);
  EXPECT_EQ(method->response.headers[0], (std::pair<std::string, std::string>("Allow", "POST, GET")));
  EXPECT_EQ(ask("HEAD", "/api/v1/things/1")->response.status, 422);
  EXPECT_EQ(ask("GET", "/api/v1/things/1")->body()["error"]["message"], "things: no");
  const auto openai = ask("POST", "/v1/make", R"({"n": 11})");
  EXPECT_EQ(openai->response.status, 400);
  EXPECT_EQ(openai->body()["error"]["type"], "invalid_request_error");
  EXPECT_EQ(openai->body()["error"]["param"], "n");
  const auto inside = ask("POST", "/v1/make", R"({"n": 1})");
  EXPECT_EQ(inside->response.status, 500);
  EXPECT_EQ(inside->response.body.find("secret"), std::string::npos);
  const auto webui = ask("POST", "/sdapi/v1/make/", R"({"n": 11})");
  EXPECT_EQ(webui->response.status, 422);
  EXPECT_EQ(webui->body()["detail"][0]["loc"], json::parse(R"(["body", "n"])"));
  EXPECT_EQ(ask("POST", "/sdapi/v1/make", R"({"url": "x", "n": 2})")->response.status, 200);
}

TEST_F(RouterTest, TheDescriptionHasEveryRoute) {
  const json d = openapi(router, "1");
  const json& post = d["paths"]["/api/v1/things/{id}"]["post"];
  const json& schema = post["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(schema["required"], json::parse(R"(["text"])"));
  EXPECT_EQ(schema["properties"]["n"]["maximum"], 10);
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(post["parameters"].size(), 2u);
  EXPECT_EQ(d["paths"]["/sdapi/v1/make"]["post"]["requestBody"]["content"]["application/json"]["schema"]
             ["additionalProperties"],
            true);
}

}  // namespace
}  // namespace sf::server
