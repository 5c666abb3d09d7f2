// The only file that sees Boost. Its operations are compiled anew for each type of executor, handler and buffer that
// they are called with: there is one of each, as far as that goes.
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <charconv>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "scaffolding/core/alone_scope.h"
#include "scaffolding/core/error.h"
#include "scaffolding/server/http/http_server.h"
#include "scaffolding/server/http/url.h"

namespace sf::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using tcp = asio::ip::tcp;
using Executor = asio::io_context::executor_type;
using TcpSocket = asio::basic_stream_socket<tcp, Executor>;
using TcpStream = beast::basic_stream<tcp, Executor>;
using Timer =
    asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Executor>;
using Done = std::function<void(beast::error_code)>;
using DoneBytes = std::function<void(beast::error_code, size_t)>;
using Clock = std::chrono::steady_clock;

namespace {
class Connection;
}

struct HttpServer::Impl : std::enable_shared_from_this<Impl> {
  Impl(HttpLimits l, HttpCallbacks c)
      : limits(l), callbacks(std::move(c)), acceptor(network), handlers(size_t(l.handler_threads)) {}
  void accept();

  const HttpLimits limits;
  const HttpCallbacks callbacks;
  asio::io_context network{1};
  asio::basic_socket_acceptor<tcp, Executor> acceptor;
  asio::thread_pool handlers;
  std::thread thread;
  uint16_t port = 0;
  std::atomic<size_t> connections{0}, bodies{0};
  std::set<Connection*> open;  // on the network's thread
  bool stopped = false;
};

namespace {

constexpr size_t kMostMessage = 64 << 10;  // bytes of a WebSocket's message

void on_thread_of(asio::io_context& network, std::function<void()> f) { asio::post(network, std::move(f)); }

// Bytes of a body that count towards the sum of all, as long as it lives.
class Reserved {
 public:
  Reserved(std::atomic<size_t>& sum, size_t bytes) : sum_(sum), bytes_(bytes) { sum_ += bytes; }
  ~Reserved() { sum_ -= bytes_; }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

 private:
  std::atomic<size_t>& sum_;
  size_t bytes_;
};

struct HeldRequest : Request {
  std::optional<Reserved> reserved;
};

class BeastExchange;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(TcpSocket socket, std::shared_ptr<HttpServer::Impl> server);
  ~Connection();
  void start() { read_head(server_->limits.request); }
  void close();
  bool is_idle() const { return state_ == State::Reading || state_ == State::Waiting || state_ == State::Ending; }

  // All on the network's thread, with the number of the request that they answer.
  void respond(uint64_t number, Response response);
  void begin_events(uint64_t number, Headers headers);
  void send(uint64_t number, std::string text);
  void end(uint64_t number);
  void on_leave(uint64_t number, std::function<void()> left);
  HttpServer::Impl& server() { return *server_; }

 private:
  void read_head(std::chrono::seconds deadline);
  void on_head(beast::error_code error);
  void read_body();
  void on_body(beast::error_code error);
  void refuse(int status, const std::string& message);
  void write(Response response, bool keep);
  void write_text(std::string text, Done done);
  void write_next();
  void begin_socket(Headers headers);
  void read_messages();
  void watch();
  void next_request();
  void lost();
  void answered(int status);

  std::shared_ptr<HttpServer::Impl> server_;
  TcpStream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<HeldRequest> request_;
  std::optional<http::response<http::string_body>> response_;
  std::optional<http::request<http::string_body>> upgrade_;  // a request for a WebSocket
  std::optional<websocket::stream<TcpStream&, false>> socket_;
  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0;
  std::vector<std::function<void()>> leaving_;
  std::weak_ptr<BeastExchange> exchange_;
  std::string peer_;
  Clock::time_point began_ = Clock::now();
  uint64_t number_ = 0;
  enum class State : uint8_t { Reading, Waiting, Writing, Events, Ending, Closed } state_ = State::Reading;
  bool writing_ = false, keep_ = true, head_only_ = false;
};

class BeastExchange final : public Exchange {
 public:
  BeastExchange(std::shared_ptr<Connection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  // The connection is let go of on the network's thread, whoever was the last to have it.
  ~BeastExchange() override {
    auto& network = connection_->server().network;
    on_thread_of(network, [c = std::move(connection_), number = number_, answered = bool(answered_)] {
      if (answered) return;
      c->respond(number, {.status = 500, .body = "{\"error\": {\"message\": \"the request was dropped\"}}"});
    });
  }
  void respond(Response response) override {
    if (answered_.exchange(true)) return;
    post([number = number_, r = std::make_shared<Response>(std::move(response))](Connection& c) {
      c.respond(number, std::move(*r));
    });
  }
  void begin_events(Headers headers) override {
    if (answered_.exchange(true)) return;
    post([number = number_, h = std::move(headers)](Connection& c) { c.begin_events(number, h); });
  }
  void send(std::string text) override {
    post([number = number_, t = std::move(text)](Connection& c) { c.send(number, t); });
  }
  void end() override {
    post([number = number_](Connection& c) { c.end(number); });
  }
  void on_leave(std::function<void()> left) override {
    post([number = number_, l = std::move(left)](Connection& c) { c.on_leave(number, l); });
  }
  bool has_left() const override { return left_; }
  std::atomic<bool> left_{false};

 private:
  template <class F> void post(F f) {
    on_thread_of(connection_->server().network, [c = connection_, f = std::move(f)] { f(*c); });
  }
  std::shared_ptr<Connection> connection_;
  uint64_t number_;
  std::atomic<bool> answered_{false};
};

Connection::Connection(TcpSocket socket, std::shared_ptr<HttpServer::Impl> server)
    : server_(std::move(server)), stream_(std::move(socket)), buffer_(server_->limits.header_bytes + (64 << 10)) {
  beast::error_code error;
  stream_.socket().set_option(tcp::no_delay(true), error);
  const auto end = stream_.socket().remote_endpoint(error);
  if (!error) peer_ = end.address().to_string();
  ++server_->connections;
  server_->open.insert(this);
}

Connection::~Connection() {
  --server_->connections;
  server_->open.erase(this);
}

void Connection::close() {
  state_ = State::Closed;
  beast::error_code error;
  stream_.socket().shutdown(tcp::socket::shutdown_both, error);
  stream_.close();
}

void Connection::read_head(std::chrono::seconds deadline) {
  state_ = State::Reading;
  parser_.emplace();
  parser_->header_limit(uint32_t(server_->limits.header_bytes));
  parser_->body_limit(server_->limits.body_bytes);
  stream_.expires_after(deadline);
  DoneBytes read = [self = shared_from_this()](beast::error_code error, size_t) { self->on_head(error); };
  http::async_read_header(stream_, buffer_, *parser_, std::move(read));
}

void Connection::read_body() {
  DoneBytes read = [self = shared_from_this()](beast::error_code error, size_t) { self->on_body(error); };
  http::async_read(stream_, buffer_, *parser_, std::move(read));
}

void Connection::on_head(beast::error_code error) {
  if (error == http::error::end_of_stream) return close();
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(431,
                  "the request's headers are larger than " + std::to_string(server_->limits.header_bytes) + " bytes");
  if (error == http::error::body_limit)
    return refuse(413, "the body is larger than " + std::to_string(server_->limits.body_bytes) + " bytes");
  if (error.category() == http::make_error_code(http::error::bad_method).category())
    return refuse(400, "this is no HTTP request: " + error.message());
  if (error) return close();

  ++number_;
  began_ = Clock::now();
  request_ = std::make_shared<HeldRequest>();
  const auto& message = parser_->get();
  request_->method = std::string(message.method_string());
  request_->target = std::string(message.target());
  request_->peer = peer_;
  for (auto& f : message) {
    std::string name(f.name_string());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    request_->headers.emplace_back(std::move(name), std::string(f.value()));
  }
  keep_ = message.keep_alive();
  head_only_ = request_->method == "HEAD";
  try {
    Target target = parse_target(request_->target);
    request_->path = std::move(target.path), request_->query = std::move(target.query);
  } catch (const sf::Error& e) {
    return refuse(400, e.what());
  }
  if (auto response = server_->callbacks.refuse(*request_)) {
    state_ = State::Waiting;
    return write(std::move(*response), false);
  }
  // What it may come to counts before a byte of it is read.
  const size_t bytes = parser_->content_length() ? size_t(*parser_->content_length())
                       : parser_->chunked()      ? server_->limits.body_bytes
                                                 : 0;
  if (bytes > server_->limits.body_bytes)
    return refuse(413, "the body is larger than " + std::to_string(server_->limits.body_bytes) + " bytes");
  if (server_->bodies + bytes > server_->limits.bodies_bytes)
    return refuse(503, "the bodies of other requests take all the memory that there is for them; try again");
  request_->reserved.emplace(server_->bodies, bytes);
  if (beast::iequals(message[http::field::expect], "100-continue")) {
    return write_text("HTTP/1.1 100 Continue\r\n\r\n", [self = shared_from_this()](beast::error_code e) {
      if (e) return self->close();
      self->read_body();
    });
  }
  stream_.expires_after(server_->limits.request);
  read_body();
}

void Connection::on_body(beast::error_code error) {
  if (error == http::error::body_limit)
    return refuse(413, "the body is larger than " + std::to_string(server_->limits.body_bytes) + " bytes");
  if (error.category() == http::make_error_code(http::error::bad_method).category() &&
      error != http::error::partial_message && error != http::error::end_of_stream)
    return refuse(400, "this is no HTTP request: " + error.message());
  if (error) return close();
  request_->body = std::move(parser_->get().body());
  request_->websocket = websocket::is_upgrade(parser_->get());
  if (request_->websocket) upgrade_.emplace(parser_->release());
  parser_.reset();
  state_ = State::Waiting;
  stream_.expires_never();
  auto exchange = std::make_shared<BeastExchange>(shared_from_this(), number_);
  exchange_ = exchange;
  watch();
  if (server_->callbacks.at_once && server_->callbacks.at_once(*request_))
    return server_->callbacks.handle(request_, std::move(exchange));
  asio::post(server_->handlers, [server = server_, request = request_, exchange]() mutable {
    const AloneScope alone;  // the cores belong to what makes pictures
    server->callbacks.handle(std::move(request), std::move(exchange));
  });
}

// While its answer is made, a client says nothing: what can be read then is its end, or its next request.
void Connection::watch() {
  stream_.socket().async_wait(
      tcp::socket::wait_read, Done([self = shared_from_this(), number = number_](beast::error_code e) {
        if (self->number_ != number || (self->state_ != State::Waiting && self->state_ != State::Events)) return;
        if (self->socket_) return;  // whose reading notices it
        char byte;
        const ssize_t n = e ? -1 : ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0) return;  // the next request: it is read when this one is answered
        if (n < 0 && !e && (errno == EAGAIN || errno == EWOULDBLOCK)) return self->watch();
        self->lost();
      }));
}

void Connection::lost() {
  if (auto exchange = exchange_.lock()) exchange->left_ = true;
  auto leaving = std::move(leaving_);
  leaving_.clear();
  if (state_ != State::Closed) close();
  for (auto& left : leaving) left();
}

void Connection::refuse(int status, const std::string& message) {
  state_ = State::Waiting;
  if (!request_) request_ = std::make_shared<HeldRequest>();
  write(server_->callbacks.malformed(status, message), false);
}

void Connection::respond(uint64_t number, Response response) {
  if (number != number_ || state_ != State::Waiting) return;
  write(std::move(response), keep_ && !server_->stopped);
}

void Connection::write(Response response, bool keep) {
  state_ = State::Writing;
  leaving_.clear();
  keep_ = keep;
  response_.emplace(http::int_to_status(unsigned(response.status)), 11);
  response_->reason(reason_of(response.status));
  response_->set(http::field::server, "scaffolding");
  if (!response.type.empty()) response_->set(http::field::content_type, response.type);
  response_->set("X-Content-Type-Options", "nosniff");
  for (auto& [name, value] : response.headers) response_->set(name, value);
  response_->keep_alive(keep);
  response_->body() = std::move(response.body);
  if (response.status != 204) response_->prepare_payload();
  if (head_only_) response_->body().clear();  // its length stays
  const int status = response.status;
  stream_.expires_after(server_->limits.response);
  DoneBytes written = [self = shared_from_this(), status](beast::error_code error, size_t) {
    self->response_.reset();
    self->answered(status);
    if (error || !self->keep_) {
      // What the client still sends would reset the connection before it has read the answer: it is taken first.
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      self->state_ = State::Ending;
      self->stream_.expires_after(std::chrono::seconds(error ? 0 : 2));
      self->buffer_.clear();
      self->next_request();
    } else {
      self->next_request();
    }
  };
  http::async_write(stream_, *response_, std::move(written));
}

void Connection::next_request() {
  request_.reset();
  if (state_ == State::Ending) {
    buffer_.clear();
    DoneBytes taken = [self = shared_from_this()](beast::error_code error, size_t n) {
      if (error || n == 0) return self->close();
      self->next_request();
    };
    return stream_.async_read_some(buffer_.prepare(4096), std::move(taken));
  }
  read_head(server_->limits.idle);
}

void Connection::answered(int status) {
  if (request_ && server_->callbacks.answered)
    server_->callbacks.answered(*request_, status, std::chrono::duration<double>(Clock::now() - began_).count());
}

void Connection::begin_events(uint64_t number, Headers headers) {
  if (number != number_ || state_ != State::Waiting) return;
  state_ = State::Events;
  keep_ = false;
  if (upgrade_) return begin_socket(std::move(headers));
  http::response_header<> head;
  head.version(11);
  head.result(http::status::ok);
  head.set(http::field::server, "scaffolding");
  head.set(http::field::content_type, "text/event-stream");
  head.set(http::field::cache_control, "no-store");
  head.set("X-Accel-Buffering", "no");
  for (auto& [name, value] : headers) head.set(name, value);
  head.set(http::field::connection, "close");
  head.set(http::field::transfer_encoding, "chunked");
  std::ostringstream text;
  text << head;
  writing_ = true;
  stream_.expires_after(server_->limits.response);
  write_text(text.str(), [self = shared_from_this()](beast::error_code error) {
    self->writing_ = false;
    if (error) return self->lost();
    self->answered(200);
    self->write_next();
  });
}

void Connection::write_text(std::string text, Done done) {
  auto held = std::make_shared<std::string>(std::move(text));
  DoneBytes written = [held, done = std::move(done)](beast::error_code error, size_t) { done(error); };
  asio::async_write(stream_, asio::buffer(*held), std::move(written));
}

void Connection::begin_socket(Headers headers) {
  stream_.expires_never();  // it has deadlines of its own, and pings
  socket_.emplace(stream_);
  socket_->set_option(websocket::stream_base::timeout::suggested(beast::role_type::server));
  socket_->set_option(
      websocket::stream_base::decorator([headers = std::move(headers)](websocket::response_type& response) {
        response.set(http::field::server, "scaffolding");
        for (auto& [name, value] : headers) response.set(name, value);
      }));
  socket_->read_message_max(kMostMessage);
  socket_->text(true);
  writing_ = true;
  socket_->async_accept(*upgrade_, Done([self = shared_from_this()](beast::error_code error) {
    self->writing_ = false;
    if (error) return self->lost();
    self->answered(101);
    self->read_messages();
    self->write_next();
  }));
}

// Clients have nothing to say here: what they send is taken and let go, until they close.
void Connection::read_messages() {
  buffer_.clear();
  DoneBytes read = [self = shared_from_this()](beast::error_code error, size_t) {
    if (self->state_ == State::Closed || (error && self->state_ == State::Ending)) return;
    if (error) return self->lost();
    self->read_messages();
  };
  socket_->async_read(buffer_, std::move(read));
}

void Connection::send(uint64_t number, std::string text) {
  if (number != number_ || state_ != State::Events || text.empty()) return;
  unsent_bytes_ += text.size();
  if (unsent_bytes_ > server_->limits.unsent_bytes) return lost();
  unsent_.push_back(std::move(text));
  write_next();
}

// As HTTP has parts of a body whose length is not known before.
std::string as_chunk(const std::string& text) {
  char size[16];
  std::string chunk(size, std::to_chars(size, size + sizeof size, text.size(), 16).ptr);
  return chunk.append("\r\n").append(text).append("\r\n");
}

void Connection::write_next() {
  if (writing_ || state_ == State::Closed) return;
  if (unsent_.empty()) {
    if (state_ != State::Ending) {
      if (!socket_) stream_.expires_never();
      return;
    }
    writing_ = true;
    Done closed = [self = shared_from_this()](beast::error_code) { self->close(); };
    if (socket_) socket_->async_close(websocket::close_code::normal, std::move(closed));
    else write_text("0\r\n\r\n", std::move(closed));
    return;
  }
  writing_ = true;
  auto text = std::make_shared<std::string>(std::move(unsent_.front()));
  unsent_.pop_front();
  DoneBytes written = [self = shared_from_this(), text, size = text->size()](beast::error_code error, size_t) {
    self->writing_ = false;
    self->unsent_bytes_ -= size;
    if (error) return self->lost();
    self->write_next();
  };
  if (!socket_) {
    stream_.expires_after(server_->limits.response);
    *text = as_chunk(*text);
    asio::async_write(stream_, asio::buffer(*text), std::move(written));
  } else socket_->async_write(asio::buffer(*text), std::move(written));
}

void Connection::end(uint64_t number) {
  if (number != number_ || state_ != State::Events) return;
  state_ = State::Ending;
  leaving_.clear();
  write_next();
}

void Connection::on_leave(uint64_t number, std::function<void()> left) {
  if (number != number_ || state_ == State::Closed) return left();
  if (state_ == State::Waiting || state_ == State::Events) leaving_.push_back(std::move(left));
}

}  // namespace

void HttpServer::Impl::accept() {
  acceptor.async_accept([self = shared_from_this()](beast::error_code error, TcpSocket socket) {
    if (error == asio::error::operation_aborted || !self->acceptor.is_open()) return;
    if (error) {  // no file handles are left, or the like: not at once again
      auto timer = std::make_shared<Timer>(self->network, std::chrono::milliseconds(50));
      return timer->async_wait(Done([self, timer](beast::error_code) {
        if (self->acceptor.is_open()) self->accept();
      }));
    }
    if (self->connections < self->limits.connections)
      std::make_shared<Connection>(std::move(socket), self)->start();  // else it closes
    self->accept();
  });
}

HttpServer::HttpServer(const std::string& address, uint16_t port, HttpLimits limits, HttpCallbacks callbacks)
    : impl_(std::make_shared<Impl>(limits, std::move(callbacks))) {
  beast::error_code error;
  const auto ip = asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
  SF_CHECK(!error, "--host: must be an address such as 127.0.0.1 or 0.0.0.0, got '", address, "'");
  const tcp::endpoint end(ip, port);
  auto& acceptor = impl_->acceptor;
  acceptor.open(end.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(end, error);
  if (!error) acceptor.listen(1024, error);
  if (error) fail<RuntimeError>("serve: cannot listen on ", address, ", port ", int64_t(port), ": ", error.message());
  impl_->port = acceptor.local_endpoint().port();
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::start() {
  impl_->accept();
  impl_->thread = std::thread([impl = impl_] {
    auto work = asio::make_work_guard(impl->network);
    impl->network.run();
  });
}

uint16_t HttpServer::port() const { return impl_->port; }
size_t HttpServer::connections() const { return impl_->connections; }
size_t HttpServer::bodies_bytes() const { return impl_->bodies; }

void HttpServer::stop_accepting() {
  on_thread_of(impl_->network, [impl = impl_] {
    beast::error_code error;
    impl->acceptor.close(error);
  });
}

void HttpServer::stop() {
  if (!impl_->thread.joinable()) return;
  on_thread_of(impl_->network, [impl = impl_] {
    beast::error_code error;
    impl->acceptor.close(error);
    impl->stopped = true;
    for (Connection* c : std::set<Connection*>(impl->open))
      if (c->is_idle()) c->close();
  });
  impl_->handlers.join();
  // Answers that are being written get there; whoever does not take them is not waited for.
  for (int i = 0; i < 100 && impl_->connections > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  on_thread_of(impl_->network, [impl = impl_] {
    for (Connection* c : std::set<Connection*>(impl->open)) c->close();
  });
  // Answers in flight are let go of before the threads that they are posted to.
  on_thread_of(impl_->network, [impl = impl_] { impl->network.stop(); });
  impl_->thread.join();
  impl_->network.restart();
  impl_->network.poll();  // what is left holds connections, which hold the network
}

}  // namespace sf::server
