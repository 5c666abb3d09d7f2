// Our own API, /api/v1: who calls, and the session by which a browser is known once it has shown its token.
#include "scaffolding/core/version.h"
#include "scaffolding/server/apis/context.h"

namespace sf::server {

namespace {

json session_json(const Context& c, const Caller& caller) {
  const RequestLimits& l = c.limits;
  return {{"name", caller.name},
          {"admin", caller.admin},
          {"tokens", c.guard.has_tokens()},
          {"signed_in", !c.guard.has_tokens() || !caller.name.empty()},
          {"runs", !c.runs.empty()},
          {"version", version()},
          {"limits", {{"pixels", l.pixels}, {"steps", l.steps}, {"pictures", l.pictures}, {"frames", l.frames}}}};
}

// No script reads it, no other site sends it, and of a server behind TLS it goes over TLS alone.
Headers cookie(const Context& c, const std::string& value, double seconds) {
  const std::string secure = c.public_url.starts_with("https://") ? "; Secure" : "";
  return {{"Set-Cookie", std::string(Guard::kSessionCookie) + "=" + value + "; Path=/; HttpOnly; SameSite=Strict" +
                             "; Max-Age=" + std::to_string(int64_t(seconds)) + secure},
          {"Cache-Control", "no-store"}};
}

}  // namespace

void add_session_routes(Router& router, Context& c) {
  router
      .add("GET", "/api/v1/session", "Who calls, and what the server takes",
           [&c](Call& call, const Answer& a) {
             a->respond(json_response(session_json(c, call.caller), 200, {{"Cache-Control", "no-store"}}));
           })
      .open();
  router
      .add("POST", "/api/v1/session", "A cookie for a token: what a browser's pages are known by",
           [&c](Call& call, const Answer& a) {
             if (!c.guard.has_tokens()) throw ApiError(409, "this server asks for no tokens", "no_tokens");
             const std::string token = call.body["token"].get<std::string>();
             a->respond(json_response({{"signed_in", true}}, 200,
                                      cookie(c, c.guard.session_of(token, seconds_now()), Guard::kSessionSeconds)));
           })
      .takes({.all = {field("token", FieldKind::Text).at_most(200).need()}})
      .open();
  router
      .add("DELETE", "/api/v1/session", "The browser forgets the cookie",
           [&c](Call&, const Answer& a) {
             a->respond(json_response({{"signed_in", false}}, 200, cookie(c, "", 0)));
           })
      .open();
}

}  // namespace sf::server
