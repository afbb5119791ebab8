#include "millrace/collective/lent_memory.h"

#include <unistd.h>

#include <limits>
#include <random>

#include "millrace/base/varint.h"

namespace millrace::collective {

const MemoryOffer& OwnMemory() {
  static const MemoryOffer* const own = [] {
    auto* const offer = new MemoryOffer;
    std::random_device random;
    for (char& byte : offer->probe) byte = static_cast<char>(random());
    offer->address = reinterpret_cast<uintptr_t>(offer->probe.data());
    offer->process = static_cast<uint64_t>(getpid());
    return offer;
  }();
  return *own;
}

std::string EncodeOffer(const MemoryOffer& offer) {
  std::string text;
  PutVarint(&text, offer.process);
  PutVarint(&text, offer.address);
  text.append(offer.probe.data(), offer.probe.size());
  return text;
}

bool ReadOffer(net::BytesReader* reader, MemoryOffer* offer) {
  return reader->ReadVarint(&offer->process) && offer->process <= std::numeric_limits<pid_t>::max() &&
         reader->ReadVarint(&offer->address) && reader->Read(offer->probe.data(), offer->probe.size());
}

StatusOr<std::shared_ptr<const LentMemory>> LentMemory::Open(const MemoryOffer& offer) {
  MR_RETURN_IF_ERROR(net::CheckProbe(static_cast<pid_t>(offer.process), offer.address, offer.probe));
  return std::shared_ptr<const LentMemory>(new LentMemory(offer));
}

Status LentMemory::Read(uint64_t from, char* to, size_t size) const {
  // If the process has died, another may have its number: what shows that it is the right one is read with the rest.
  net::MemoryProbe found;
  const net::MemoryCopy copies[] = {{to, from, size}, {found.data(), offer_.address, found.size()}};
  MR_RETURN_IF_ERROR(net::ReadMemory(static_cast<pid_t>(offer_.process), copies));
  if (found != offer_.probe) return Unavailable("process ", offer_.process, " is not the one that lent memory");
  return absl::OkStatus();
}

}  // namespace millrace::collective
