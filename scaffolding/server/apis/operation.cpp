// What whoever runs the server asks it: is it there, does it work, how much does it do; and what its API is.
#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/core/version.h"
#include "scaffolding/server/apis/context.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

void add_operation_routes(Router& router, Context& c) {
  router
      .add("GET", "/healthz", "200 as long as the process answers",
           [](Call&, const Answer& a) { a->respond({.body = "ok\n", .type = "text/plain"}); })
      .open()
      .at_once();
  router
      .add("GET", "/readyz", "200 where jobs are accepted, else 503 and why",
           [&c](Call&, const Answer& a) {
             if (c.jobs.is_stopping()) return a->respond({.status = 503, .body = "stopping\n", .type = "text/plain"});
             try {
               c.jobs.history().check();
             } catch (const Unavailable& e) {
               const std::string why = e.what();  // behind ':' there are names and addresses, which the log has
               return a->respond({.status = 503,
                                  .body = printable(why.substr(0, why.find(':'))) + "\n",
                                  .type = "text/plain",
                                  .headers = {{"Retry-After", "5"}}});
             } catch (const sf::Error& e) {
               return a->respond({.status = 503, .body = "the history does not answer\n", .type = "text/plain"});
             }
             a->respond({.body = "ready\n", .type = "text/plain"});
           })
      .open();
  router
      .add("GET", "/openapi.json", "This description",
           [&router](Call&, const Answer& a) { a->respond(json_response(openapi(router, version()))); })
      .open();
}

}  // namespace sf::server
