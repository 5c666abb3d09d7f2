#include "scaffolding/server/page/page.h"

#include "scaffolding/io/sha.h"

namespace sf::server {

namespace {

// Nothing from elsewhere, no inline code, and no text becomes markup: the page has no other defence to forget.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

const char* type_of(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return name.ends_with(".css") ? "text/css; charset=utf-8" : "text/html; charset=utf-8";
}

}  // namespace

void add_page_routes(Router& router) {
  for (const PageFile& file : page_files()) {
    io::Sha sha(io::Sha::Sha256);
    sha.update(file.text.data(), file.text.size());
    const std::string tag = "\"" + sha.hex().substr(0, 16) + "\"";
    const bool front = file.name == "index.html";
    router
        .add("GET", front ? "/" : "/page/" + std::string(file.name),
             front ? "The page to work in" : "A part of the page",
             [file, tag](Call& call, const Answer& a) {
               Response r{.type = type_of(file.name),
                          .headers = {{"ETag", tag},
                                      {"Cache-Control", "no-cache"},
                                      {"Content-Security-Policy", kPolicy},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"Cross-Origin-Opener-Policy", "same-origin"}}};
               if (call.request.header("if-none-match") == tag) r.status = 304;
               else r.body = std::string(file.text);
               a->respond(std::move(r));
             })
        .open();
  }
}

}  // namespace sf::server
