// Both directions of a connection in sealed records.
#pragma once

#include <string>

#include "millrace/launch/meeting/meeting_hello.h"
#include "millrace/net/tls/sealed_records.h"

namespace millrace::launch {

struct SealedChannel {
  SealedChannel(const std::string& key, bool keeper)
      : out(key, keeper ? kFromKeeper : kToKeeper), in(key, keeper ? kToKeeper : kFromKeeper) {}
  net::RecordSealer out;
  net::RecordOpener in;
};

}  // namespace millrace::launch
