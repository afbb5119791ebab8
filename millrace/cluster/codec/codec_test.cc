#include "millrace/cluster/codec/codec.h"

#include <algorithm>
#include <fstream>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "millrace/cluster/codec/codec_reference_testing.h"
#include "millrace/net/received_buffer.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using testing::CheckAgainstProtobuf;
using testing::Deterministic;
using ::testing::HasSubstr;

struct Captured {
  std::string from;
  std::string type;
  std::string bytes;
};

// Messages captured between TensorFlow's clients, masters and workers.
const std::vector<Captured>& CapturedMessages() {
  static const auto* const messages = [] {
    auto* list = new std::vector<Captured>;
    std::ifstream file(MILLRACE_TESTDATA "/wire/messages.txt");
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      list->push_back({words[0], words[1], words[2] == "-" ? "" : absl::HexStringToBytes(words[2])});
    }
    return list;
  }();
  return *messages;
}

net::Bytes InPieces(const std::string& text, size_t piece) {
  net::Bytes bytes;
  for (size_t at = 0; at < text.size(); at += piece) bytes.Append(net::Bytes::Of(text.substr(at, piece)));
  return bytes;
}

std::vector<DType> PlainTypes() {
  std::vector<DType> types;
  for (int i = 1; i <= 23; ++i) {
    if (IsKnown(static_cast<DType>(i)) && IsPlain(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types;
}

Tensor Filled(DType dtype, Shape shape) {
  Tensor tensor(dtype, std::move(shape));
  for (size_t i = 0; i < tensor.TotalBytes(); ++i) {
    tensor.raw<uint8_t>()[i] = dtype == DType::kBool ? i % 2 : static_cast<uint8_t>(i * 7 + 1);
  }
  return tensor;
}

TEST(CodecTest, TheIdentityOfARunComesBack) {
  const RunIdentity run{.client = 0xfedcba9876543210, .number = 300, .oldest = 299, .attempt = 2};
  const auto expect_same = [&](const RunIdentity& back) {
    EXPECT_EQ(back.client, run.client);
    EXPECT_EQ(back.number, 300);
    EXPECT_EQ(back.oldest, 299);
    EXPECT_EQ(back.attempt, 2);
  };
  RunGraphCall graph;
  graph.run = run;
  const net::Bytes graph_bytes = EncodeRunGraph(graph).value();
  EXPECT_EQ(CheckAgainstProtobuf<pb::RunGraphRequest>(graph_bytes), absl::OkStatus());
  expect_same(DecodeRunGraph(graph_bytes)->run);
  RunCallableCall callable;
  callable.run = run;
  const net::Bytes callable_bytes = EncodeRunCallable(callable).value();
  EXPECT_EQ(CheckAgainstProtobuf<pb::RunCallableRequest>(callable_bytes), absl::OkStatus());
  expect_same(DecodeRunCallable(callable_bytes)->run);
}

TEST(Codec, ReadsAndWritesWhatTensorFlowSays) {
  ASSERT_GT(CapturedMessages().size(), 200);
  for (const Captured& message : CapturedMessages()) {
    EXPECT_EQ(CheckAgainstProtobuf(message.type, net::Bytes::Of(message.bytes)), absl::OkStatus()) << message.from;
  }
}

TEST(Codec, TakesNoNoticeOfWherePiecesEnd) {
  for (const Captured& message : CapturedMessages()) {
    if (message.bytes.size() > 400) continue;
    EXPECT_EQ(CheckAgainstProtobuf(message.type, InPieces(message.bytes, 1)), absl::OkStatus()) << message.from;
    for (size_t at = 1; at < message.bytes.size(); ++at) {
      net::Bytes bytes = net::Bytes::Of(message.bytes.substr(0, at));
      bytes.Append(net::Bytes::Of(message.bytes.substr(at)));
      EXPECT_EQ(CheckAgainstProtobuf(message.type, bytes), absl::OkStatus()) << message.from << " split at " << at;
    }
  }
}

TEST(Codec, RefusesWhatProtobufRefuses) {
  std::mt19937 random(1);
  const google::protobuf::LogSilencer silencer;
  // A cost_graph, of which nothing is kept.
  EXPECT_FALSE(DecodeRunGraphAnswer(net::Bytes::Of("\x1a\x03"
                                                   "cpu"))
                   .ok());
  for (const Captured& message : CapturedMessages()) {
    if (message.bytes.size() > 400) continue;
    for (size_t size = 0; size < message.bytes.size(); ++size) {
      EXPECT_EQ(CheckAgainstProtobuf(message.type, net::Bytes::Of(message.bytes.substr(0, size))), absl::OkStatus())
          << message.from << " cut at " << size;
      std::string changed = message.bytes;
      changed[size] = static_cast<char>(random());
      EXPECT_EQ(CheckAgainstProtobuf(message.type, net::Bytes::Of(changed)), absl::OkStatus())
          << message.from << " changed at " << size << ": " << absl::BytesToHexString(changed);
    }
  }
}

TEST(Codec, WritesTheBytesThatProtobufWrites) {
  for (DType dtype : PlainTypes()) {
    for (const Shape& shape : {Shape(), Shape({3}), Shape({2, 0, 3}), Shape({200, 300}), Shape({1, 2, 1, 2, 1, 2})}) {
      RunStepCall call;
      call.session_handle = "372bc3b5d388a9da";
      call.feeds = {{"x:0", Filled(dtype, shape)}, {"y:0", Filled(dtype, Shape({5}))}};
      call.fetches = {"a:0", ""};
      call.targets = {"train"};
      call.options.set_timeout_in_ms(10);
      call.store_errors_in_response_body = true;
      call.request_id = -5;
      pb::RunStepRequest proto;
      testing::Reference<pb::RunStepRequest>::ToProto(call, &proto);
      const net::Bytes encoded = EncodeRunStep(call).value();
      EXPECT_EQ(encoded.Flatten(), Deterministic(proto)) << DTypeName(dtype) << shape.ToString();
      EXPECT_EQ(CheckAgainstProtobuf<pb::RunStepRequest>(encoded), absl::OkStatus());
      EXPECT_EQ(CheckAgainstProtobuf<pb::RunStepRequest>(InPieces(encoded.Flatten(), 4097)), absl::OkStatus());
    }
  }
}

TEST(Codec, CarriesStringsHandlesAndTypedValues) {
  RunCallableAnswer answer;
  ResourceHandle handle;
  handle.container = "localhost";
  handle.name = "queue";
  answer.fetches = {Tensor::Of<std::string>({"a", "", std::string(3000, 'z')}), Tensor::Scalar(handle),
                    Tensor(DType::kString, Shape({0, 2}))};
  const net::Bytes encoded = EncodeRunCallableAnswer(answer).value();
  EXPECT_EQ(CheckAgainstProtobuf<pb::RunCallableResponse>(encoded), absl::OkStatus());
  const RunCallableAnswer decoded = DecodeRunCallableAnswer(encoded).value();
  EXPECT_EQ(decoded.fetches[0].flat<std::string>()[2], std::string(3000, 'z'));
  EXPECT_EQ(decoded.fetches[1].scalar<ResourceHandle>().name, "queue");
  EXPECT_EQ(decoded.fetches[2].shape(), Shape({0, 2}));

  pb::RunCallableResponse typed;
  for (DType dtype : PlainTypes()) {
    TensorToProtoFields(Filled(dtype, Shape({2, 3})), typed.add_fetch());
    typed.add_fetch()->set_dtype(static_cast<pb::DataType>(dtype));  // zero
  }
  TensorToProtoFields(Tensor::Of<std::string>({"a", "b"}), typed.add_fetch());
  EXPECT_EQ(CheckAgainstProtobuf<pb::RunCallableResponse>(net::Serialize(typed)), absl::OkStatus());
}

TEST(Codec, AcceptsFieldsInAnyOrderAndMoreThanOnce) {
  std::vector<std::string> tensor = {"\x08\x01",
                                     std::string("\x12\x04\x12\x02\x08\x02"),
                                     "\"\x08"
                                     "abcdefgh",
                                     "\"\x04"
                                     "abcd",
                                     "\x18\x07",
                                     "\xa2\x06\x03xyz",
                                     "\xa3\x06\x08\x01\xa4\x06"};
  std::mt19937 random(2);
  const auto field = [](int number, const std::string& bytes) {
    return absl::StrCat(std::string(1, static_cast<char>(number << 3 | 2)),
                        std::string(1, static_cast<char>(bytes.size())), bytes);
  };
  int taken = 0;
  for (int i = 0; i < 300; ++i) {
    std::shuffle(tensor.begin(), tensor.end(), random);
    std::string first, second;
    for (size_t k = 0; k < tensor.size(); ++k) (k < random() % 8 ? first : second) += tensor[k];
    std::vector<std::string> named = {field(1, "x:0"), field(2, first), field(2, second)};
    std::shuffle(named.begin(), named.end(), random);
    std::vector<std::string> step = {field(1, "handle"),   field(2, absl::StrCat(named[0], named[1], named[2])),
                                     field(3, "y:0"),      field(3, "z:0"),
                                     field(5, "\x10\x05"), field(5, "\x08\x01"),
                                     "\x38\x01",           "\x40\x05"};
    std::shuffle(step.begin(), step.end(), random);
    std::string text;
    for (const std::string& part : step) text += part;
    EXPECT_EQ(CheckAgainstProtobuf<pb::RunStepRequest>(net::Bytes::Of(text)), absl::OkStatus())
        << absl::BytesToHexString(text);
    taken += DecodeRunStep(net::Bytes::Of(text)).ok();
  }
  EXPECT_GT(taken, 50);
}

TEST(Codec, SharesTheMemoryOfLargeTensors) {
  Tensor whole = Filled(DType::kFloat, Shape({1000, 10}));
  Tensor part = whole.Slice(300, 900);
  const void* const data = part.raw_data();
  const std::string expected(static_cast<const char*>(data), part.TotalBytes());
  net::Bytes encoded;
  {
    RunStepAnswer answer;
    answer.tensors = {{"small:0", Filled(DType::kFloat, Shape({10}))}, {"y:0", std::move(part)}};
    encoded = EncodeRunStepAnswer(answer).value();
  }
  whole = Tensor();
  bool shared = false;
  for (const auto& piece : encoded.pieces())
    shared |= piece.data.data() == data && piece.data.size() == expected.size();
  EXPECT_TRUE(shared);
  EXPECT_EQ(encoded.pieces().size(), 3);
  const RunStepAnswer decoded = DecodeRunStepAnswer(encoded).value();
  const Tensor& y = decoded.tensors[1].second;
  EXPECT_TRUE(y.IsAligned());
  EXPECT_TRUE(y.RefCountIsOne());
  EXPECT_EQ(std::string(static_cast<const char*>(y.raw_data()), y.TotalBytes()), expected);
}

// A block of memory like those that transports receive into.
class Block final : public net::ReceivedBuffer {
 public:
  explicit Block(RefPtr<Buffer> memory) : ReceivedBuffer(memory->data(), memory->size()), memory_(std::move(memory)) {}

 private:
  const RefPtr<Buffer> memory_;
};

// The same message, each of its pieces in memory that was received into, `shift` bytes behind its start.
net::Bytes AsReceived(const net::Bytes& bytes, size_t shift = 0) {
  net::Bytes received;
  for (const net::Bytes::Piece& piece : bytes.pieces()) {
    auto block = MakeRef<Block>(Allocator::Heap()->Allocate(piece.data.size() + shift));
    char* const to = static_cast<char*>(block->data()) + shift;
    std::copy(piece.data.begin(), piece.data.end(), to);
    received.Append({to, piece.data.size()}, std::move(block));
  }
  return received;
}

bool PointsInto(const Tensor& tensor, const net::Bytes& bytes) {
  return std::any_of(bytes.pieces().begin(), bytes.pieces().end(), [&](const net::Bytes::Piece& piece) {
    return static_cast<const char*>(tensor.raw_data()) >= piece.data.data() &&
           static_cast<const char*>(tensor.raw_data()) < piece.data.data() + piece.data.size();
  });
}

TEST(Codec, MemoryThatALargeTensorWasReceivedIntoBecomesItsOwn) {
  for (const DType dtype : PlainTypes()) {
    const Tensor sent = Filled(dtype, Shape({3, 5000}));
    net::Bytes bytes = AsReceived(EncodeRecvTensorAnswer({.tensor = sent}, 1).value());
    ASSERT_GT(bytes.pieces().size(), 1);
    Tensor tensor = DecodeRecvTensorAnswer(bytes, Allocator::Heap()).value().tensor;
    EXPECT_EQ(PointsInto(tensor, bytes), dtype != DType::kBool) << DTypeName(dtype);
    EXPECT_EQ(std::memcmp(tensor.raw_data(), sent.raw_data(), sent.TotalBytes()), 0);
    bytes = {};
    EXPECT_TRUE(tensor.RefCountIsOne());
    EXPECT_TRUE(tensor.IsAligned());
  }
}

TEST(Codec, OtherMemoryIsCopied) {
  const Tensor sent = Filled(DType::kFloat, Shape({5000}));
  const net::Bytes encoded = EncodeRecvTensorAnswer({.tensor = sent}, 1).value();
  const auto check = [&](const net::Bytes& bytes) {
    const Tensor tensor = DecodeRecvTensorAnswer(bytes, Allocator::Heap()).value().tensor;
    EXPECT_EQ(std::memcmp(tensor.raw_data(), sent.raw_data(), sent.TotalBytes()), 0);
    return !PointsInto(tensor, bytes);
  };
  EXPECT_FALSE(check(AsReceived(encoded)));
  EXPECT_FALSE(check(AsReceived(encoded, 64)));
  EXPECT_TRUE(check(encoded)) << "the sender's own";
  EXPECT_TRUE(check(AsReceived(encoded, 4))) << "not aligned";
  EXPECT_TRUE(check(AsReceived(encoded, 64'000))) << "a small part of a large block";
  EXPECT_TRUE(check(AsReceived(InPieces(encoded.Flatten(), 1000)))) << "in several pieces";
  const Tensor small = Filled(DType::kFloat, Shape({300}));
  const net::Bytes bytes = AsReceived(EncodeRecvTensorAnswer({.tensor = small}, 1).value());
  EXPECT_FALSE(PointsInto(DecodeRecvTensorAnswer(bytes, Allocator::Heap()).value().tensor, bytes));
}

// Claims to be larger than it is; encoding never looks inside.
class HugeBuffer : public Buffer {
 public:
  explicit HugeBuffer(size_t size) : Buffer(nullptr, size) { data_ = this; }
};

TEST(Codec, RefusesMoreThanAMessageCanHold) {
  const Shape shape({1100, 1000, 1000});
  const Tensor large(DType::kUInt8, shape, MakeRef<HugeBuffer>(shape.num_elements()));
  RunStepCall call;
  call.feeds = {{"a:0", large}, {"b:0", large}};
  Status status = EncodeRunStep(call).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("feed 1 'b:0' of RunStepRequest: "), HasSubstr("uint8[1100,1000,1000]"),
                                      HasSubstr("takes 11000000"), HasSubstr("2147483647")));

  const Tensor larger(DType::kDouble, shape, MakeRef<HugeBuffer>(8 * shape.num_elements()));
  status = EncodeRecvTensorAnswer({larger, false}, 1).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("RecvTensorResponse"), HasSubstr("double[1100,1000,1000]")));
}

TEST(Codec, NamesTheTensorThatIsWrong) {
  pb::RunStepRequest proto;
  TensorToProto(Tensor::Scalar(1.f), proto.add_feed()->mutable_tensor());
  auto* feed = proto.add_feed();
  feed->set_name("x:0");
  feed->mutable_tensor()->set_dtype(pb::DT_FLOAT);
  feed->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(3);
  feed->mutable_tensor()->set_tensor_content("12345678");
  Status status = DecodeRunStep(net::Serialize(proto)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("feed 1 'x:0' of RunStepRequest: "), HasSubstr("float[3] has 8 bytes")));

  feed->mutable_tensor()->mutable_tensor_shape()->mutable_dim(0)->set_size(-3);
  status = DecodeRunStep(net::Serialize(proto)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("feed 1 'x:0' of RunStepRequest: "));

  status = DecodeRunGraph(net::Bytes::Of("\x1a\x05\x0a\x09zz")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("RunGraphRequest"));
}

TEST(Codec, BoundsWhatFewBytesMayAskFor) {
  pb::RunStepRequest proto;
  for (int i = 0; i < 1000; ++i) {
    auto* tensor = proto.add_feed()->mutable_tensor();
    tensor->set_dtype(pb::DT_FLOAT);
    tensor->mutable_tensor_shape()->add_dim()->set_size(20 << 20);
  }
  const Status status = DecodeRunStep(net::Serialize(proto)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("feed 1 '' of RunStepRequest: "));
}

TEST(Codec, CarriesStatusesInBodies) {
  RunGraphAnswer answer;
  answer.status = FailedPrecondition("variable w is not initialised, says \"\xff\"");
  const RunGraphAnswer decoded = DecodeRunGraphAnswer(EncodeRunGraphAnswer(answer).value()).value();
  EXPECT_EQ(decoded.status, FailedPrecondition("variable w is not initialised, says \"?\""));
  EXPECT_EQ(DecodeRunGraphAnswer(net::Bytes()).value().status, absl::OkStatus());
  // A code that is not defined.
  EXPECT_EQ(DecodeRunGraphAnswer(net::Bytes::Of("\x28\x63")).value().status, absl::UnknownError("(code 99) "));
}

TEST(Codec, CarriesDeadValuesAndWritesTheTensorLast) {
  const net::Bytes dead = EncodeRecvTensorAnswer({Tensor(), true}, 7).value();
  EXPECT_EQ(absl::BytesToHexString(dead.Flatten().substr(0, 5)), "100118070a");
  EXPECT_TRUE(DecodeRecvTensorAnswer(dead, Allocator::Heap()).value().is_dead);
  const net::Bytes alive = EncodeRecvTensorAnswer({Tensor::Of<float>({1, 2, 3}), false}, 7).value();
  EXPECT_EQ(absl::BytesToHexString(alive.Flatten()),
            "18070a1608011204120208032"
            "20c0000803f0000004000004040");
  EXPECT_EQ(EncodeRecvTensorAnswer({Tensor(), false}, 7).status().code(), absl::StatusCode::kInvalidArgument);
}

// The values of a dead tensor mean nothing; bytes that are no TensorProto are an error all the same.
TEST(Codec, ADeadValueHasAWellFormedTensor) {
  // is_dead, and a tensor of an unknown type with float_val in `size` bytes.
  const auto dead = [](char size) {
    const std::string tensor = absl::StrCat(std::string("\x2a"), std::string(1, size), std::string(size, '\0'));
    return net::Bytes::Of(absl::StrCat("\x10\x01\x0a", std::string(1, static_cast<char>(tensor.size())), tensor));
  };
  EXPECT_TRUE(DecodeRecvTensorAnswer(dead(8), Allocator::Heap()).value().is_dead);
  const Status status = DecodeRecvTensorAnswer(dead(7), Allocator::Heap()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("tensor of RecvTensorResponse: "));
  for (const char size : {7, 8})
    EXPECT_EQ(CheckAgainstProtobuf("RecvTensorResponse", dead(size)), absl::OkStatus()) << int{size};
}

TEST(Codec, SaysWhichVariantStaysInItsProcess) {
  class Private : public VariantValue {
    absl::string_view TypeName() const override { return "Private"; }
    std::string DebugString() const override { return "private"; }
  };
  RunStepAnswer answer;
  answer.tensors = {{"v:0", Tensor::Scalar(Variant(MakeRef<Private>()))}};
  const Status status = EncodeRunStepAnswer(answer).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("tensor 0 'v:0' of RunStepResponse: "));
}

}  // namespace
}  // namespace millrace
