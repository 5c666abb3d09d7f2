#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/distributed/store_protocol.h"

// What a client sends to the port of a store, after its greeting, in two pieces; another client waits meanwhile.
SF_FUZZ_TARGET(store) {
  using namespace sf::distributed;
  StoreProtocol protocol;
  std::string greeting(1, char(Query::Validate)), waits(1, char(Query::Wait));
  put<uint32_t>(greeting, kStoreMagic);
  put<uint64_t>(waits, 1);
  put_text(waits, "/k");
  auto* bytes = reinterpret_cast<const char*>(data);
  for (int client : {1, 2}) {
    protocol.connect(client);
    protocol.receive(client, greeting.data(), greeting.size());
  }
  protocol.receive(2, waits.data(), waits.size());
  if (!protocol.receive(1, bytes, size / 2) || !protocol.receive(1, bytes + size / 2, size - size / 2))
    protocol.disconnect(1);
  for (int client : protocol.answered()) protocol.answers(client).clear();
  protocol.disconnect(2);
}
