#include "scaffolding/server/server.h"

#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"
#include "scaffolding/server/page/page.h"

namespace sf::server {

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

namespace {

ShelfSettings shelf_settings(const ServerSettings& s) {
  ShelfSettings shelf = s.shelf;
  shelf.hashes = s.data + "/hashes.json";
  return shelf;
}

GuardSettings guard_settings(const ServerSettings& s, const std::string& secret) {
  GuardSettings guard = s.guard;
  guard.secret = secret;
  return guard;
}

}  // namespace

struct Server::Parts {
  Parts(ServerSettings s, Samplers samplers, std::FILE* to)
      : log(to, s.log_requests),
        history(s.data, s.database, s.lease),
        guard(guard_settings(s, history.secret())),
        shelf(shelf_settings(s)),
        jobs(history, shelf, std::move(samplers), s.jobs, log, metrics),
        upscaling(shelf),
        context{jobs, upscaling, guard, metrics, log, s.requests, history.secret(), s.public_url, s.runs} {
    add_operation_routes(router, context);
    add_job_routes(router, context);
    add_picture_routes(router, context);
    add_session_routes(router, context);
    add_run_routes(router, context);
    add_page_routes(router);
    add_openai_routes(router, context);
    add_webui_routes(router, context);
    add_webui_list_routes(router, context);
    add_webui_extra_routes(router, context);
    add_comfy_routes(router, context);
    router.add("GET", "/metrics", "Counts and times, for Prometheus", [this](Call&, const Answer& a) {
      Metrics::Gauges now{.waiting = jobs.waiting(), .running = jobs.running()};
      now.connections = http->connections(), now.body_bytes = http->bodies_bytes();
      now.resident_models = shelf.resident().size(), now.model_bytes = shelf.resident_bytes();
      a->respond({.body = metrics.text(now), .type = "text/plain; version=0.0.4"});
    });
    router.failed = [this](const Request& r, const std::exception& e) {
      log.write("failure", {{"path", r.path}, {"error", e.what()}});
    };
    HttpCallbacks callbacks;
    callbacks.refuse = [this](const Request& head) { return refuse(head); };
    callbacks.handle = [this](std::shared_ptr<const Request> r, Answer a) { handle(*r, std::move(a)); };
    callbacks.at_once = [this](const Request& r) {
      const auto found = router.find(r.method, r.path);
      return found.route && !found.route->waits;
    };
    callbacks.answered = [this](const Request& r, int status, double seconds) { answered(r, status, seconds); };
    callbacks.malformed = [](int status, const std::string& message) {
      return error_response(ErrorShape::Own, ApiError(status, message, "http"));
    };
    http.emplace(s.host, s.port, s.http, std::move(callbacks));
    jobs.start();
    http->start();
    for (auto& [name, why] : shelf.refused()) log.write("model refused", {{"model", name}, {"reason", why}});
    log.write("ready",
              {{"version", version()}, {"host", s.host}, {"port", http->port()}, {"models", shelf.models().size()}});
  }

  Response with_cors(Response response, const Request& request) const {
    for (auto& h : guard.cors(request)) response.headers.push_back(h);
    return response;
  }

  // By the head alone, before a body is read: by whom, from where and whether to anything that is there.
  std::optional<Response> refuse(const Request& head) {
    const auto found = router.find(head.method, head.path);
    try {
      if (auto wrong = guard.check_origin(head)) throw ApiError(*wrong);
      if (Guard::is_preflight(head)) return with_cors({.status = 204, .type = ""}, head);
      guard.caller(head, found.route ? found.route->access : Access::User);
      if (found.route && found.route->creates && jobs.is_stopping())
        throw ApiError(503, "the server is stopping", "stopping", "", {{"Retry-After", "10"}});
    } catch (const ApiError& e) {
      return with_cors(error_response(found.shape, e), head);
    }
    return {};
  }

  // Adds what browsers of allowed origins have to be told to whatever is answered.
  class WithCors final : public Exchange {
   public:
    WithCors(Answer inner, Headers headers) : inner_(std::move(inner)), headers_(std::move(headers)) {}
    void respond(Response r) override {
      r.headers.insert(r.headers.end(), headers_.begin(), headers_.end());
      inner_->respond(std::move(r));
    }
    void begin_events(Headers h) override {
      h.insert(h.end(), headers_.begin(), headers_.end());
      inner_->begin_events(std::move(h));
    }
    void send(std::string text) override { inner_->send(std::move(text)); }
    void end() override { inner_->end(); }
    void on_leave(std::function<void()> left) override { inner_->on_leave(std::move(left)); }
    bool has_left() const override { return inner_->has_left(); }

   private:
    Answer inner_;
    Headers headers_;
  };

  void handle(const Request& request, Answer answer) {
    if (Headers headers = guard.cors(request); !headers.empty())
      answer = std::make_shared<WithCors>(std::move(answer), std::move(headers));
    const auto found = router.find(request.method, request.path);
    try {
      if (!found.route && request.method == "OPTIONS" && !found.allowed.empty()) {
        std::string allowed = "OPTIONS";
        for (auto& m : found.allowed) allowed += ", " + m;
        return answer->respond({.status = 204, .type = "", .headers = {{"Allow", allowed}}});
      }
      const Caller caller = guard.caller(request, found.route ? found.route->access : Access::User);
      router.dispatch(found, request, caller, answer);
    } catch (const std::exception& e) {
      log.write("failure", {{"path", request.path}, {"error", e.what()}});
      answer->respond(error_response(found.shape, e));
    }
  }

  void answered(const Request& r, int status, double seconds) {
    metrics.count_request(r.method, status, seconds);
    if (log.requests)
      log.write("request",
                {{"method", r.method}, {"path", r.path}, {"status", status}, {"seconds", seconds}, {"peer", r.peer}});
  }

  Log log;
  Metrics metrics;
  History history;
  Guard guard;
  ModelShelf shelf;
  Jobs jobs;
  Upscaling upscaling;
  Context context;
  Router router;
  std::optional<HttpServer> http;
};

Server::Server(ServerSettings s, Samplers samplers, std::FILE* log) {
  s.guard.loopback = is_loopback(s.host);
  SF_CHECK(s.guard.loopback || !s.guard.tokens.empty(),
           "--host: beyond this machine the server listens with tokens only; ",
           "--new-token NAME writes one, --tokens names the file");
  parts_ = std::make_unique<Parts>(std::move(s), std::move(samplers), log);
}

Server::~Server() { stop(0); }

uint16_t Server::port() const { return parts_->http->port(); }

void Server::stop(double drain_seconds) {
  if (!parts_) return;
  parts_->log.write("stopping", {{"seconds", drain_seconds}});
  parts_->upscaling.stop();
  parts_->jobs.stop(drain_seconds);
  parts_->http->stop_accepting();
  parts_->http->stop();
  parts_->log.write("stopped");
  parts_.reset();
}

}  // namespace sf::server
