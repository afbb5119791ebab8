#include "millrace/cluster/codec/step_wire.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

SteppedTensor Numbered(int number, Tensor value) { return {.number = number, .item = {.tensor = std::move(value)}}; }

// The same bytes, cut after each `size` of them.
net::Bytes Cut(const net::Bytes& bytes, size_t size) {
  const std::string text = bytes.Flatten();
  net::Bytes cut;
  for (size_t at = 0; at < text.size(); at += size) cut.Append(net::Bytes::Of(text.substr(at, size)));
  return cut;
}

SteppedTensors Sample() {
  SteppedTensors tensors;
  tensors.push_back(Numbered(0, Tensor::Scalar(2.5f)));
  tensors.push_back(Numbered(300, Tensor::Of<int64_t>(Shape({3, 1}), {1, -2, 3})));
  tensors.push_back(Numbered(2, Tensor::FromVector<std::string>({"a", "", std::string(300, 'b')})));
  tensors.push_back(Numbered(3, Tensor(DType::kFloat, Shape({0, 7}))));
  Tensor large(DType::kDouble, Shape({100, 50}));
  for (int i = 0; i < 5000; ++i) large.data<double>()[i] = i;
  tensors.push_back(Numbered(4, large));
  tensors.push_back({.number = 5, .item = {.tensor = {}, .is_dead = true}});
  tensors.push_back({.key = "a;b;c;d;7:8", .item = {.tensor = Tensor::Scalar<int32_t>(9)}});
  return tensors;
}

void ExpectSame(const SteppedTensors& a, const SteppedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].number, b[i].number);
    EXPECT_EQ(a[i].key, b[i].key);
    EXPECT_EQ(a[i].item.is_dead, b[i].item.is_dead);
    if (!a[i].item.is_dead) {
      EXPECT_EQ(a[i].item.tensor.DebugString(10000), b[i].item.tensor.DebugString(10000));
    }
  }
}

TEST(StepWireTest, TensorsComeBackAsTheyWereHoweverTheyAreCut) {
  const SteppedTensors tensors = Sample();
  const net::Bytes bytes = EncodeTensors(tensors, 17).value();
  for (const size_t size : {size_t{1}, size_t{7}, size_t{1000}, bytes.size()}) {
    const SteppedTensors back = DecodeTensors(Cut(bytes, size), Allocator::Heap()).value();
    ExpectSame(back, tensors);
    EXPECT_EQ(back[0].item.sent_micros, 17);
  }
}

TEST(StepWireTest, ALargeTensorIsAPieceOfItsOwnMemory) {
  const Tensor large(DType::kFloat, Shape({1000}));
  const net::Bytes bytes = EncodeTensors({Numbered(1, large)}, 0).value();
  EXPECT_TRUE(std::any_of(bytes.pieces().begin(), bytes.pieces().end(),
                          [&](const auto& piece) { return piece.data.data() == large.raw_data(); }));
}

TEST(StepWireTest, ANumberedScalarTakesFewBytes) {
  EXPECT_LE(EncodeTensors({Numbered(5, Tensor::Scalar(1.f))}, 0)->size(), 10u);
}

TEST(StepWireTest, BeginningAndEndComeBackAsTheyWere) {
  StepStart start{.session_handle = "s", .graph_handle = "0000000000000001", .step_id = -5};
  start.record_timeline = true;
  start.run = {.client = 0xfedcba9876543210, .number = 300, .oldest = 299, .attempt = 2};
  start.feeds = Sample();
  const StepStart began = DecodeStepStart(Cut(EncodeStepStart(start).value(), 5), Allocator::Heap()).value();
  EXPECT_EQ(began.session_handle, "s");
  EXPECT_EQ(began.graph_handle, start.graph_handle);
  EXPECT_EQ(began.step_id, -5);
  EXPECT_EQ(began.run.client, start.run.client);
  EXPECT_EQ(began.run.number, 300);
  EXPECT_EQ(began.run.oldest, 299);
  EXPECT_EQ(began.run.attempt, 2);
  EXPECT_TRUE(began.record_timeline && !began.record_partition_graphs);
  ExpectSame(began.feeds, start.feeds);

  StepEnd end{.status = NotFound("no \xff such thing"), .step_stats = {}};
  end.step_stats.add_dev_stats()->set_device("cpu");
  end.partition_graphs.emplace_back().add_node()->set_name("n");
  end.tensors = Sample();
  const StepEnd ended = DecodeStepEnd(Cut(EncodeStepEnd(end).value(), 5), Allocator::Heap()).value();
  EXPECT_EQ(ended.status, end.status);
  EXPECT_EQ(ended.step_stats.dev_stats(0).device(), "cpu");
  EXPECT_EQ(ended.partition_graphs[0].node(0).name(), "n");
  ExpectSame(ended.tensors, end.tensors);
}

Status DecodeAny(int kind, const net::Bytes& bytes) {
  if (kind == 0) return DecodeTensors(bytes, Allocator::Heap()).status();
  if (kind == 1) return DecodeStepStart(bytes, Allocator::Heap()).status();
  return DecodeStepEnd(bytes, Allocator::Heap()).status();
}

TEST(StepWireTest, WhatIsCutShortOrGoesOnIsRefused) {
  StepEnd end{.status = absl::OkStatus(), .step_stats = {}};
  end.tensors = Sample();
  StepStart start{.session_handle = "s", .graph_handle = "g", .step_id = 1};
  start.feeds = Sample();
  const net::Bytes whole[] = {EncodeTensors(Sample(), 1).value(), EncodeStepStart(start).value(),
                              EncodeStepEnd(end).value()};
  for (int kind = 0; kind < 3; ++kind) {
    const std::string text = whole[kind].Flatten();
    EXPECT_EQ(DecodeAny(kind, net::Bytes::Of(text)), absl::OkStatus());
    for (size_t size = 0; size < text.size(); size += size < 1000 ? 1 : 997) {
      EXPECT_EQ(DecodeAny(kind, net::Bytes::Of(text.substr(0, size))).code(), absl::StatusCode::kInvalidArgument)
          << kind << " " << size;
    }
    EXPECT_EQ(DecodeAny(kind, net::Bytes::Of(text + "x")).code(), absl::StatusCode::kInvalidArgument);
  }
}

// By hand: one tensor, edge 3, then what is given.
Status Decode(std::string rest) {
  return DecodeTensors(net::Bytes::Of(std::string{2, 3 << 2} + rest), Allocator::Heap()).status();
}

TEST(StepWireTest, AnErrorSaysWhatIsWrong) {
  const char kFloat = 1;
  EXPECT_EQ(Decode(std::string{kFloat, 0, 4} + "abcd"), absl::OkStatus());
  const auto message = [](const Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(Decode(std::string{kFloat, 0, 5} + "abcde")), HasSubstr("edge 3: float[] does not have 5 bytes"));
  EXPECT_THAT(message(Decode(std::string{kFloat, 1, 2, 8} + "abcd")), HasSubstr("only 4 of its 8 bytes are present"));
  EXPECT_THAT(message(Decode(std::string{99, 0, 4} + "abcd")), HasSubstr("there is no type 99"));
  EXPECT_THAT(message(Decode(std::string{kFloat, '\xff', '\x01', 4} + "abcd")), HasSubstr("its rank is 255"));
  EXPECT_THAT(message(DecodeTensors(net::Bytes::Of(std::string{'\xfe', '\x7f', 1}), Allocator::Heap()).status()),
              HasSubstr("1 bytes for 8191 tensors"));
  EXPECT_THAT(message(DecodeStepStart(net::Bytes::Of("\x02"), Allocator::Heap()).status()), HasSubstr("format 2"));
}

}  // namespace
}  // namespace millrace
