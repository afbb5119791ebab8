// RecvBufResponse as bytes: TensorFlow carries the buffer in transport_options, an Any with a RecvBufRespExtra.
#pragma once

#include <cstdint>

#include "millrace/base/status.h"
#include "millrace/net/bytes.h"

namespace millrace {

// The buffer becomes a piece of the message. INVALID_ARGUMENT if it is too large for one.
StatusOr<net::Bytes> EncodeRecvBufResponse(const net::Bytes& buffer, int64_t send_start_micros);
// The buffer, in the pieces that it was received in. INVALID_ARGUMENT for a malformed message or one without a buffer.
StatusOr<net::Bytes> DecodeRecvBufResponse(const net::Bytes& message);

}  // namespace millrace
