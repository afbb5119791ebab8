#include "millrace/net/bytes.h"

#include <gtest/gtest.h>

#include <random>

#include "google/protobuf/wrappers.pb.h"

namespace millrace::net {
namespace {

using google::protobuf::BytesValue;
using google::protobuf::UInt64Value;

Bytes InPieces(const std::vector<std::string>& texts) {
  Bytes bytes;
  for (const std::string& text : texts) bytes.Append(Bytes::Of(text));
  return bytes;
}

class Watched : public RefCounted {
 public:
  Watched(std::string text, bool* gone) : text(std::move(text)), gone_(gone) {}
  ~Watched() override { *gone_ = true; }
  const std::string text;

 private:
  bool* const gone_;
};

TEST(Bytes, KeepsTheOwnersOfItsPiecesUntilTheLastCopyIsGone) {
  bool gone = false;
  auto owner = MakeRef<Watched>("tensor", &gone);
  Bytes bytes;
  bytes.Append(owner->text, owner);
  EXPECT_EQ(bytes.pieces()[0].data.data(), owner->text.data());
  owner.reset();
  Bytes copy = bytes;
  bytes = Bytes();
  EXPECT_FALSE(gone);
  EXPECT_EQ(copy.Flatten(), "tensor");
  copy = Bytes();
  EXPECT_TRUE(gone);
}

TEST(Bytes, HasNoEmptyPieces) {
  Bytes bytes = InPieces({"", "ab", "", "c", ""});
  EXPECT_EQ(bytes.pieces().size(), 2);
  EXPECT_EQ(bytes.size(), 3);
  EXPECT_EQ(bytes.Flatten(), "abc");
  EXPECT_TRUE(Bytes::Of("").empty());
  EXPECT_TRUE(InPieces({}).pieces().empty());
}

TEST(Bytes, CanBeAppendedToItself) {
  Bytes bytes = InPieces({"ab", "c"});
  bytes.Append(bytes);
  EXPECT_EQ(bytes.Flatten(), "abcabc");
}

TEST(BytesReader, ReadsAcrossPieces) {
  const Bytes bytes = InPieces({"ab", "c", "defg", "h"});
  BytesReader reader(bytes);
  char two[2];
  ASSERT_TRUE(reader.Read(two, 1));
  ASSERT_TRUE(reader.Read(two, 2));
  EXPECT_EQ(std::string(two, 2), "bc");
  BytesReader mark = reader;
  std::string text;
  ASSERT_TRUE(reader.ReadString(5, &text));
  EXPECT_EQ(text, "defgh");
  EXPECT_EQ(reader.remaining(), 0);
  EXPECT_TRUE(reader.Skip(0));
  EXPECT_FALSE(reader.Skip(1));
  ASSERT_TRUE(mark.Skip(1));
  Bytes rest;
  ASSERT_TRUE(mark.ReadBytes(3, &rest));
  EXPECT_EQ(rest.Flatten(), "efg");
  EXPECT_EQ(rest.pieces()[0].data.data(), bytes.pieces()[2].data.data() + 1);
  EXPECT_EQ(mark.remaining(), 1);
}

TEST(BytesReader, RefusesASizeThatIsNotThere) {
  const Bytes bytes = InPieces({"ab", "c"});
  std::string text;
  EXPECT_FALSE(BytesReader(bytes).ReadString(size_t{1} << 60, &text));
  EXPECT_TRUE(text.empty());
  Bytes part;
  EXPECT_FALSE(BytesReader(bytes).ReadBytes(4, &part));
  EXPECT_FALSE(BytesReader(bytes).Skip(~size_t{0}));
  char c;
  EXPECT_FALSE(BytesReader(Bytes()).Read(&c, 1));
}

TEST(BytesReader, ReadsVarintsAcrossPieces) {
  const std::vector<uint64_t> values = {0, 1, 127, 128, 300, uint64_t{1} << 35, ~uint64_t{0}};
  for (uint64_t value : values) {
    UInt64Value message;
    message.set_value(value);
    const std::string wire = message.SerializeAsString();
    if (wire.empty()) continue;  // protobuf leaves a zero out
    Bytes bytes;
    for (char c : wire.substr(1)) bytes.Append(Bytes::Of(std::string(1, c)));
    BytesReader reader(bytes);
    uint64_t read = 0;
    ASSERT_TRUE(reader.ReadVarint(&read));
    EXPECT_EQ(read, value);
    EXPECT_EQ(reader.remaining(), 0);
  }
}

TEST(BytesReader, RefusesVarintsWithoutAnEnd) {
  uint64_t value;
  EXPECT_FALSE(BytesReader(Bytes::Of(std::string(11, '\xff'))).ReadVarint(&value));
  EXPECT_FALSE(BytesReader(Bytes::Of("\x80")).ReadVarint(&value));
  EXPECT_FALSE(BytesReader(Bytes()).ReadVarint(&value));
}

TEST(Parse, GivesBackWhatWasSerialized) {
  BytesValue message;
  message.set_value("some text");
  BytesValue copy;
  ASSERT_TRUE(Parse(Serialize(message), &copy).ok());
  EXPECT_EQ(copy.value(), "some text");
  ASSERT_TRUE(Parse(Bytes(), &copy).ok());
  EXPECT_EQ(copy.value(), "");
}

TEST(Parse, ReadsAMessageCutAnywhere) {
  BytesValue message;
  message.set_value(std::string(1000, 'x') + "end");
  const std::string wire = message.SerializeAsString();
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Bytes bytes;
    for (size_t at = 0; at < wire.size();) {
      const size_t size = std::min<size_t>(wire.size() - at, 1 + random() % 400);
      bytes.Append(Bytes::Of(wire.substr(at, size)));
      at += size;
    }
    BytesValue copy;
    ASSERT_TRUE(Parse(bytes, &copy).ok());
    EXPECT_EQ(copy.value(), message.value());
  }
}

TEST(Parse, NamesTheTypeThatTheBytesAreNot) {
  BytesValue message;
  for (const Bytes& bytes : {Bytes::Of("\xff\xff"), InPieces({"\x0a", "\x7f", "short"})}) {
    const Status status = Parse(bytes, &message);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("google.protobuf.BytesValue"), absl::string_view::npos) << status;
  }
}

TEST(BytesInputStream, GivesBackWhatWasBackedUp) {
  const Bytes bytes = InPieces({"abc", "de", "f"});
  BytesInputStream stream(bytes);
  const void* data;
  int size;
  ASSERT_TRUE(stream.Next(&data, &size));
  stream.BackUp(2);
  EXPECT_EQ(stream.ByteCount(), 1);
  ASSERT_TRUE(stream.Next(&data, &size));
  EXPECT_EQ(std::string(static_cast<const char*>(data), size), "bc");
  ASSERT_TRUE(stream.Skip(1));
  ASSERT_TRUE(stream.Next(&data, &size));
  EXPECT_EQ(std::string(static_cast<const char*>(data), size), "e");
  stream.BackUp(1);
  ASSERT_TRUE(stream.Skip(2));
  EXPECT_EQ(stream.ByteCount(), 6);
  EXPECT_FALSE(stream.Next(&data, &size));
  EXPECT_FALSE(stream.Skip(1));
}

}  // namespace
}  // namespace millrace::net
