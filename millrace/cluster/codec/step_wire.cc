#include "millrace/cluster/codec/step_wire.h"

#include <cstring>
#include <limits>
#include <utility>

#include "millrace/cluster/codec/tensor_fields.h"
#include "millrace/cluster/codec/tensor_wire.h"

namespace millrace {
namespace {

// The first byte of a request and of an answer, which identifies the version of the format.
constexpr uint64_t kFormat = 1;
// Smaller tensors are copied into the text, which costs a transport less than a piece of their own.
constexpr size_t kShareTensorFrom = 1024;
// Flags in a tensor's first number; its value is shifted past them.
constexpr uint64_t kDead = 1, kByKey = 2, kFlagBits = 2;
// Flags of the request and of the answer.
constexpr uint64_t kTimeline = 1, kPartitionGraphs = 2, kMayRepeat = 4, kHasIdentity = 8, kHasCollectiveStep = 16;
constexpr uint64_t kFailed = 1, kStats = 2, kGraphs = 4;

class Writer {
 public:
  Writer() { text_.reserve(192); }

  void Number(uint64_t value) {
    char bytes[10];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) bytes[size++] = static_cast<char>(value | 0x80);
    bytes[size++] = static_cast<char>(value);
    text_.append(bytes, size);
  }
  void Fixed(uint64_t value) {
    char bytes[8];
    std::memcpy(bytes, &value, 8);
    text_.append(bytes, 8);
  }
  void Text(string_view text) {
    Number(text.size());
    text_.append(text.data(), text.size());
  }
  void Message(const google::protobuf::MessageLite& message) {
    Number(message.ByteSizeLong());
    message.AppendPartialToString(&text_);
  }
  void Content(string_view data, const RefPtr<Buffer>& owner) {
    if (data.size() < kShareTensorFrom || !owner) {
      text_.append(data.data(), data.size());
    } else {
      Flush();
      bytes_.Append(data, owner);
    }
  }
  void Append(net::Bytes bytes) {
    Flush();
    bytes_.Append(std::move(bytes));
  }
  net::Bytes Take() && {
    Flush();
    return std::move(bytes_);
  }

 private:
  void Flush() {
    if (text_.empty()) return;
    bytes_.Append(net::Bytes::Of(std::move(text_)));
    text_.clear();
  }

  net::Bytes bytes_;
  std::string text_;  // follows bytes_
};

// Reads what a Writer wrote. Errors are sticky: later reads return nothing.
class Reader {
 public:
  Reader(const net::Bytes& bytes, const char* what) : in_(bytes), what_(what) {}

  uint64_t Number() {
    uint64_t value = 0;
    if (!failed_ && !in_.ReadVarint(&value)) failed_ = true;
    return failed_ ? 0 : value;
  }
  uint64_t Fixed() {
    uint64_t value = 0;
    if (!failed_ && !in_.Read(&value, 8)) failed_ = true;
    return failed_ ? 0 : value;
  }
  std::string Text() {
    const uint64_t size = Number();
    std::string text;
    if (!failed_ && (size > in_.remaining() || !in_.ReadString(size, &text))) failed_ = true;
    return text;
  }
  net::Bytes Part() {
    const uint64_t size = Number();
    net::Bytes part;
    if (!failed_ && (size > in_.remaining() || !in_.ReadBytes(size, &part))) failed_ = true;
    return part;
  }
  size_t remaining() const { return in_.remaining(); }
  net::BytesReader* in() { return &in_; }
  bool failed() const { return failed_; }
  Status Malformed(absl::string_view why) const { return InvalidArgument(what_, " of a step ", why); }
  Status TooShort() const { return Malformed("ends too early"); }
  // Checks that everything has been read.
  Status End() const {
    if (failed_) return TooShort();
    return in_.remaining() == 0 ? absl::OkStatus()
                                : Malformed(absl::StrCat("has ", in_.remaining(), " bytes more than it says"));
  }

 private:
  net::BytesReader in_;
  const char* const what_;
  bool failed_ = false;
};

Status WriteOne(const SteppedTensor& tensor, Writer* out) {
  const bool by_key = tensor.number < 0;
  const uint64_t number = by_key ? 0 : static_cast<uint64_t>(tensor.number);
  out->Number(number << kFlagBits | (by_key ? kByKey : 0) | (tensor.item.is_dead ? kDead : 0));
  if (by_key) out->Text(tensor.key);
  if (tensor.item.is_dead) return absl::OkStatus();
  const Tensor& value = tensor.item.tensor;
  const DType dtype = value.dtype();
  out->Number(static_cast<uint64_t>(static_cast<int>(dtype)));
  if (!IsKnown(dtype) || IsRef(dtype))
    return InvalidArgument("a tensor of this type cannot be sent: ", DTypeName(dtype));
  if (!IsPlain(dtype)) {
    // Strings, handles and variants are written as a TensorProto.
    MessageWriter proto;
    MR_RETURN_IF_ERROR(WriteTensor(1, value, &proto));
    MR_ASSIGN_OR_RETURN(net::Bytes bytes, std::move(proto).Take("TensorProto"));
    out->Number(bytes.size());
    out->Append(std::move(bytes));
    return absl::OkStatus();
  }
  out->Number(static_cast<uint64_t>(value.rank()));
  for (const int64_t dim : value.shape().dims()) out->Number(static_cast<uint64_t>(dim));
  const size_t size = value.TotalBytes();
  out->Number(size);
  if (size > 0) out->Content(string_view(static_cast<const char*>(value.raw_data()), size), value.buffer());
  return absl::OkStatus();
}

Status WriteAll(const SteppedTensors& tensors, int64_t sent_micros, Writer* out) {
  out->Number(tensors.size() << 1 | (sent_micros != 0 ? 1 : 0));
  if (sent_micros != 0) out->Fixed(static_cast<uint64_t>(sent_micros));
  for (const SteppedTensor& tensor : tensors) {
    if (Status status = WriteOne(tensor, out); !status.ok()) {
      return WithPrefix(tensor.number < 0 ? absl::StrCat("tensor ", tensor.key, ": ")
                                          : absl::StrCat("tensor of edge ", tensor.number, ": "),
                        status);
    }
  }
  return absl::OkStatus();
}

Status ReadValue(Reader* in, DType dtype, RepeatLimit* repeats, Allocator* allocator, Tensor* tensor) {
  if (!IsPlain(dtype)) {
    const net::Bytes proto = in->Part();
    if (in->failed()) return in->TooShort();
    net::BytesReader reader(proto);
    FieldReader fields(&reader);
    TensorField field;
    while (fields.Next()) {
      if (fields.tag() == BytesTag(1)) {
        field.Scan(&fields);
      } else {
        fields.Skip();
      }
    }
    MR_RETURN_IF_ERROR(fields.End("TensorProto"));
    MR_RETURN_IF_ERROR(field.Read(allocator, repeats, tensor));
    return tensor->dtype() == dtype
               ? absl::OkStatus()
               : InvalidArgument("its type is declared as ", DTypeName(dtype), " but is ", DTypeName(tensor->dtype()));
  }
  const uint64_t rank = in->Number();
  if (rank > Shape::kMaxRank) return InvalidArgument("its rank is ", rank);
  Shape::Dims dims;
  for (uint64_t i = 0; i < rank && !in->failed(); ++i) dims.push_back(static_cast<int64_t>(in->Number()));
  const uint64_t size = in->Number();
  if (in->failed()) return in->TooShort();
  MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  size_t wanted = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(shape.num_elements()), SizeOf(dtype), &wanted) || wanted != size) {
    return InvalidArgument(DTypeName(dtype), shape.ToString(), " does not have ", size, " bytes");
  }
  if (size > in->remaining()) return InvalidArgument("only ", in->remaining(), " of its ", size, " bytes are present");
  return ReadContent(in->in(), dtype, shape, allocator, tensor);
}

Status ReadAll(Reader* in, Allocator* allocator, int64_t* sent_micros, SteppedTensors* tensors) {
  const uint64_t head = in->Number();
  const int64_t sent = (head & 1) != 0 ? static_cast<int64_t>(in->Fixed()) : 0;
  const uint64_t count = head >> 1;
  if (in->failed()) return in->TooShort();
  if (count > in->remaining())
    return in->Malformed(absl::StrCat("has ", in->remaining(), " bytes for ", count, " tensors"));
  if (sent_micros != nullptr) *sent_micros = sent;
  tensors->reserve(std::min<uint64_t>(count, 1024));
  RepeatLimit repeats;
  for (uint64_t i = 0; i < count; ++i) {
    SteppedTensor& tensor = tensors->emplace_back();
    const uint64_t first = in->Number();
    const uint64_t number = first >> kFlagBits;
    const bool by_key = (first & kByKey) != 0;
    if (by_key) tensor.key = in->Text();
    if (in->failed()) return in->TooShort();
    if (number > static_cast<uint64_t>(std::numeric_limits<int>::max()))
      return in->Malformed(absl::StrCat("names edge ", number));
    tensor.number = by_key ? -1 : static_cast<int>(number);
    tensor.item.sent_micros = sent;
    tensor.item.is_dead = (first & kDead) != 0;
    if (tensor.item.is_dead) continue;
    const uint64_t type = in->Number();
    if (in->failed()) return in->TooShort();
    const DType dtype = type < 1000 ? static_cast<DType>(static_cast<int>(type)) : DType::kInvalid;
    Status status = IsKnown(dtype) && !IsRef(dtype) ? ReadValue(in, dtype, &repeats, allocator, &tensor.item.tensor)
                                                    : InvalidArgument("there is no type ", type);
    if (!status.ok())
      return WithPrefix(in->Malformed(by_key ? absl::StrCat("has a bad tensor ", tensor.key, ": ")
                                             : absl::StrCat("has a bad tensor of edge ", number, ": "))
                            .message(),
                        status);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<net::Bytes> EncodeTensors(const SteppedTensors& tensors, int64_t sent_micros) {
  Writer out;
  MR_RETURN_IF_ERROR(WriteAll(tensors, sent_micros, &out));
  return std::move(out).Take();
}

StatusOr<SteppedTensors> DecodeTensors(const net::Bytes& bytes, Allocator* allocator) {
  Reader in(bytes, "a message");
  SteppedTensors tensors;
  MR_RETURN_IF_ERROR(ReadAll(&in, allocator, nullptr, &tensors));
  MR_RETURN_IF_ERROR(in.End());
  return tensors;
}

StatusOr<net::Bytes> EncodeStepStart(const StepStart& start) {
  Writer out;
  out.Number(kFormat);
  out.Number((start.record_timeline ? kTimeline : 0) | (start.record_partition_graphs ? kPartitionGraphs : 0) |
             (start.may_repeat ? kMayRepeat : 0) | (start.run.given() ? kHasIdentity : 0) |
             (start.collective_step != 0 ? kHasCollectiveStep : 0));
  out.Fixed(static_cast<uint64_t>(start.step_id));
  out.Text(start.session_handle);
  out.Text(start.graph_handle);
  if (start.run.given()) {
    out.Fixed(start.run.client);
    for (const int64_t number : {start.run.number, start.run.oldest, start.run.attempt})
      out.Number(static_cast<uint64_t>(number));
  }
  if (start.collective_step != 0) out.Fixed(static_cast<uint64_t>(start.collective_step));
  MR_RETURN_IF_ERROR(WriteAll(start.feeds, 0, &out));
  return std::move(out).Take();
}

StatusOr<StepStart> DecodeStepStart(const net::Bytes& bytes, Allocator* allocator) {
  StatusOr<StepStart> result{absl::in_place};
  Reader in(bytes, "the beginning");
  if (const uint64_t format = in.Number(); format != kFormat)
    return in.Malformed(absl::StrCat("is of format ", format, ", not ", kFormat));
  const uint64_t flags = in.Number();
  result->record_timeline = (flags & kTimeline) != 0;
  result->record_partition_graphs = (flags & kPartitionGraphs) != 0;
  result->may_repeat = (flags & kMayRepeat) != 0;
  result->step_id = static_cast<int64_t>(in.Fixed());
  result->session_handle = in.Text();
  result->graph_handle = in.Text();
  if ((flags & kHasIdentity) != 0) {
    result->run.client = in.Fixed();
    for (int64_t* number : {&result->run.number, &result->run.oldest, &result->run.attempt})
      *number = static_cast<int64_t>(in.Number());
  }
  if ((flags & kHasCollectiveStep) != 0) result->collective_step = static_cast<int64_t>(in.Fixed());
  MR_RETURN_IF_ERROR(ReadAll(&in, allocator, nullptr, &result->feeds));
  MR_RETURN_IF_ERROR(in.End());
  return result;
}

StatusOr<net::Bytes> EncodeStepEnd(const StepEnd& end) {
  const bool has_stats = end.step_stats.dev_stats_size() > 0;
  Writer out;
  out.Number(kFormat);
  out.Number((end.status.ok() ? 0 : kFailed) | (has_stats ? kStats : 0) | (end.partition_graphs.empty() ? 0 : kGraphs));
  if (!end.status.ok()) {
    out.Number(static_cast<uint64_t>(end.status.code()));
    out.Text(end.status.message());
  }
  if (has_stats) out.Message(end.step_stats);
  if (!end.partition_graphs.empty()) {
    out.Number(end.partition_graphs.size());
    for (const pb::GraphDef& graph : end.partition_graphs) out.Message(graph);
  }
  MR_RETURN_IF_ERROR(WriteAll(end.tensors, end.sent_micros, &out));
  return std::move(out).Take();
}

StatusOr<StepEnd> DecodeStepEnd(const net::Bytes& bytes, Allocator* allocator) {
  StatusOr<StepEnd> result{absl::in_place};
  Reader in(bytes, "the end");
  if (const uint64_t format = in.Number(); format != kFormat)
    return in.Malformed(absl::StrCat("is of format ", format, ", not ", kFormat));
  const uint64_t flags = in.Number();
  if ((flags & kFailed) != 0) {
    const uint64_t code = in.Number();
    result->status = StatusFromFields(code, in.Text());
  }
  if ((flags & kStats) != 0) MR_RETURN_IF_ERROR(net::Parse(in.Part(), &result->step_stats));
  const uint64_t graphs = (flags & kGraphs) != 0 ? in.Number() : 0;
  for (uint64_t i = 0; i < graphs && !in.failed(); ++i)
    MR_RETURN_IF_ERROR(net::Parse(in.Part(), &result->partition_graphs.emplace_back()));
  MR_RETURN_IF_ERROR(ReadAll(&in, allocator, &result->sent_micros, &result->tensors));
  MR_RETURN_IF_ERROR(in.End());
  return result;
}

}  // namespace millrace
