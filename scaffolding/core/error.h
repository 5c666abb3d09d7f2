// Errors: one sentence saying op, rule, what came and what to do.
// The library throws and never prints or aborts. Python sees ValueError, TypeError, IndexError or RuntimeError.
#pragma once
#include <cstdint>
#include <initializer_list>
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

// A part of a message, by reference: it lasts as long as its statement.
class MessagePart {
 public:
  MessagePart(const char* s) : kind_(Text), text_(s ? std::string_view(s) : "(null)") {}
  MessagePart(std::string_view s) : kind_(Text), text_(s) {}
  MessagePart(const std::string& s) : kind_(Text), text_(s) {}
  MessagePart(bool v) : kind_(Text), text_(v ? "true" : "false") {}
  MessagePart(int v) : kind_(Signed), signed_(v) {}
  MessagePart(unsigned v) : kind_(Unsigned), unsigned_(v) {}
  MessagePart(long v) : kind_(Signed), signed_(v) {}
  MessagePart(unsigned long v) : kind_(Unsigned), unsigned_(v) {}
  MessagePart(long long v) : kind_(Signed), signed_(v) {}
  MessagePart(double v) : kind_(Real), real_(v) {}
  MessagePart(const Shape& s) : kind_(Sizes), shape_(&s) {}
  MessagePart(DType t) : kind_(Type), type_(t) {}
  MessagePart(const Device& d) : kind_(Place), device_(&d) {}

 private:
  friend class Message;
  enum Kind : uint8_t { Text, Signed, Unsigned, Real, Sizes, Type, Place } kind_;
  union {
    std::string_view text_;
    long long signed_;
    unsigned long long unsigned_;
    double real_;
    const Shape* shape_;
    DType type_;
    const Device* device_;
  };
};

// Collects the parts of a message.
class Message {
 public:
  Message& operator<<(const MessagePart& part);
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

std::string message_of(std::initializer_list<MessagePart> parts);

// Out of line, and one function for an error: a check costs its callers little code, and no template.
template <class E> [[noreturn, gnu::noinline, gnu::cold]] void raise(std::initializer_list<MessagePart> parts) {
  throw E(message_of(parts));
}
extern template void raise<ValueError>(std::initializer_list<MessagePart> parts);
extern template void raise<TypeError>(std::initializer_list<MessagePart> parts);
extern template void raise<IndexError>(std::initializer_list<MessagePart> parts);
extern template void raise<RuntimeError>(std::initializer_list<MessagePart> parts);
extern template void raise<NotSupported>(std::initializer_list<MessagePart> parts);

template <class E = ValueError, class... P> [[noreturn, gnu::always_inline]] inline void fail(const P&... parts) {
  raise<E>({parts...});
}

// For callers' mistakes. SF_CHECK throws ValueError; SF_CHECK_AS names the error type.
#define SF_CHECK(cond, ...) SF_CHECK_AS(ValueError, cond, __VA_ARGS__)
#define SF_CHECK_AS(type, cond, ...)          \
  do {                                        \
    if (!(cond)) [[unlikely]]                 \
      ::sf::raise<::sf::type>({__VA_ARGS__}); \
  } while (0)

// For our own mistakes; debug builds only.
#ifdef NDEBUG
#define SF_ASSERT(cond) ((void)0)
#else
#define SF_ASSERT(cond) SF_CHECK_AS(RuntimeError, cond, "internal: ", #cond, " at ", __FILE__)
#endif

}  // namespace sf
