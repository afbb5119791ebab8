// Bytes as another rank might send them.
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/collective/lent_memory.h"
#include "millrace/collective/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  using namespace millrace::collective;
  const net::Bytes bytes = net::Bytes::Of(std::string(reinterpret_cast<const char*>(data), size));
  if (const StatusOr<Message> message = DecodeMessage(bytes); message.ok()) {
    // What was read is read again in the same way.
    net::Bytes again = net::Bytes::Of(EncodeHead(*message));
    again.Append(message->payload);
    const StatusOr<Message> twice = DecodeMessage(again);
    if (!twice.ok() || twice->sequence != message->sequence || twice->index != message->index ||
        twice->spec != message->spec || twice->address != message->address || twice->shared != message->shared ||
        twice->payload_size() != message->payload_size())
      __builtin_trap();
    if (message->spec.has_value() && Describe(*message->spec).empty()) __builtin_trap();
  }
  net::BytesReader offers(bytes);
  MemoryOffer offer;
  if (ReadOffer(&offers, &offer) && EncodeOffer(offer).size() < offer.probe.size()) __builtin_trap();
  net::BytesReader reader(bytes);
  Sender sender;
  if (ReadSender(&reader, &sender)) {
    const net::Bytes again = net::Bytes::Of(EncodeSender(sender));
    net::BytesReader second(again);
    Sender twice;
    if (!ReadSender(&second, &twice) || twice.group != sender.group || twice.rank != sender.rank) __builtin_trap();
  }
  if (DecodeStatus(bytes).ok()) __builtin_trap();
  return 0;
}
