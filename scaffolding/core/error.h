// Errors: one sentence saying op, rule, what came and what to do.
// The library throws and never prints or aborts. Python sees ValueError, TypeError, IndexError or RuntimeError.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sf {

class Shape;
enum class DType : uint8_t;
struct Device;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ValueError : Error {  // a wrong value or shape
  using Error::Error;
};
struct TypeError : Error {  // a wrong kind of argument or dtype
  using Error::Error;
};
struct IndexError : Error {  // an index or dimension out of range
  using Error::Error;
};
struct RuntimeError : Error {  // the state of the machine, the tape or a file does not allow the call
  using Error::Error;
};
struct NotSupported : RuntimeError {  // a combination this build or device has no kernel for
  using RuntimeError::RuntimeError;
};

// Collects the parts of a message. Out of line, so that a check costs its callers little code.
class Message {
 public:
  Message& operator<<(const char* s);
  Message& operator<<(std::string_view s);
  Message& operator<<(const std::string& s);
  Message& operator<<(bool v);
  Message& operator<<(int v);
  Message& operator<<(unsigned v);
  Message& operator<<(long v);
  Message& operator<<(unsigned long v);
  Message& operator<<(long long v);
  Message& operator<<(double v);
  Message& operator<<(const Shape& s);
  Message& operator<<(DType t);
  Message& operator<<(const Device& d);
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

template <class E = ValueError, class... P> [[noreturn, gnu::noinline, gnu::cold]] void fail(const P&... parts) {
  Message m;
  (m << ... << parts);
  throw E(m.str());
}

// For callers' mistakes. SF_CHECK throws ValueError; SF_CHECK_AS names the error type.
#define SF_CHECK(cond, ...)    \
  do {                         \
    if (!(cond)) [[unlikely]]  \
      ::sf::fail(__VA_ARGS__); \
  } while (0)
#define SF_CHECK_AS(type, cond, ...)       \
  do {                                     \
    if (!(cond)) [[unlikely]]              \
      ::sf::fail<::sf::type>(__VA_ARGS__); \
  } while (0)

// For our own mistakes; debug builds only.
#ifdef NDEBUG
#define SF_ASSERT(cond) ((void)0)
#else
#define SF_ASSERT(cond) SF_CHECK_AS(RuntimeError, cond, "internal: ", #cond, " at ", __FILE__)
#endif

}  // namespace sf
