#include "scaffolding/core/error.h"

#include <cstdio>

#include "scaffolding/core/device.h"
#include "scaffolding/core/dtype.h"
#include "scaffolding/core/shape.h"

namespace sf {

Message& Message::operator<<(const MessagePart& part) {
  switch (part.kind_) {
    case MessagePart::Text: text_ += part.text_; break;
    case MessagePart::Signed: text_ += std::to_string(part.signed_); break;
    case MessagePart::Unsigned: text_ += std::to_string(part.unsigned_); break;
    case MessagePart::Real: {
      char b[32];
      std::snprintf(b, sizeof b, "%g", part.real_);
      text_ += b;
      break;
    }
    case MessagePart::Sizes: text_ += sf::str(*part.shape_); break;
    case MessagePart::Type: text_ += name(part.type_); break;
    case MessagePart::Place: text_ += part.device_->str(); break;
  }
  return *this;
}

std::string message_of(std::initializer_list<MessagePart> parts) {
  Message m;
  for (const MessagePart& part : parts) m << part;
  return m.str();
}

template void raise<ValueError>(std::initializer_list<MessagePart> parts);
template void raise<TypeError>(std::initializer_list<MessagePart> parts);
template void raise<IndexError>(std::initializer_list<MessagePart> parts);
template void raise<RuntimeError>(std::initializer_list<MessagePart> parts);
template void raise<NotSupported>(std::initializer_list<MessagePart> parts);

}  // namespace sf
