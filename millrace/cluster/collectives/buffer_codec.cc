#include "millrace/cluster/collectives/buffer_codec.h"

#include <string>

#include "millrace/cluster/codec/field_reader.h"
#include "millrace/cluster/codec/message_writer.h"

namespace millrace {
namespace {

constexpr char kExtraType[] = "type.googleapis.com/tensorflow.RecvBufRespExtra";
constexpr char kBufferMessage[] = "RecvBufResponse";

// The fields that are used here.
constexpr uint32_t kTransportOptions = 4;  // of RecvBufResponse
constexpr uint32_t kSendStartMicros = 5;
constexpr uint32_t kTypeUrl = 1;  // of Any
constexpr uint32_t kValue = 2;
constexpr uint32_t kTensorContent = 1;  // of RecvBufRespExtra

}  // namespace

StatusOr<net::Bytes> EncodeRecvBufResponse(const net::Bytes& buffer, int64_t send_start_micros) {
  const size_t size = buffer.size();
  const size_t content = 1 + VarintSize(size) + size;  // tensor_content, which TensorFlow leaves out if it is empty
  const size_t value = size == 0 ? 0 : content;
  const size_t type = sizeof(kExtraType) - 1;
  const size_t any = 1 + VarintSize(type) + type + (value == 0 ? 0 : 1 + VarintSize(value) + value);
  MessageWriter out;
  out.Varint(BytesTag(kTransportOptions));
  out.Varint(any);
  out.String(kTypeUrl, kExtraType);
  if (value > 0) {
    out.Varint(BytesTag(kValue));
    out.Varint(value);
    out.Varint(BytesTag(kTensorContent));
    out.Varint(size);
    for (const net::Bytes::Piece& piece : buffer.pieces()) out.Piece(piece.data, piece.owner);
  }
  out.Number(kSendStartMicros, send_start_micros);
  return std::move(out).Take(kBufferMessage);
}

StatusOr<net::Bytes> DecodeRecvBufResponse(const net::Bytes& message) {
  net::Bytes buffer;
  std::string type;
  net::BytesReader source(message);
  FieldReader response(&source);
  while (response.Next()) {
    if (response.tag() != BytesTag(kTransportOptions)) {
      response.Skip();
      continue;
    }
    FieldReader any = response.Enter();
    while (any.Next()) {
      if (any.tag() != BytesTag(kValue)) {
        any.Take(kTypeUrl, &type) || any.Ignore();
        continue;
      }
      FieldReader extra = any.Enter();
      while (extra.Next()) {
        net::Bytes piece;
        if (extra.tag() != BytesTag(kTensorContent)) {
          extra.Skip();
        } else if (source.ReadBytes(extra.size(), &piece)) {
          buffer.Append(std::move(piece));
        } else {
          extra.Fail();
        }
      }
      MR_RETURN_IF_ERROR(extra.End("RecvBufRespExtra"));
    }
    MR_RETURN_IF_ERROR(any.End("Any"));
  }
  MR_RETURN_IF_ERROR(response.End(kBufferMessage));
  if (type != kExtraType) {
    return InvalidArgument("a RecvBufResponse has no buffer: its transport_options are of type '", type, "'");
  }
  return buffer;
}

}  // namespace millrace
