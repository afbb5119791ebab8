#include "millrace/net/tls/sealed_records.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::net {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SealedMessage, IsOpenedWithItsKeyAndNoOther) {
  const std::string key = DeriveSealKey("secret", "a job").value();
  const std::string sealed = SealMessage(key, "hello").value();
  EXPECT_THAT(sealed, Not(HasSubstr("hello")));
  EXPECT_EQ(OpenMessage(key, sealed).value(), "hello");
  for (const auto& [secret, label] : {std::pair("secret", "another job"), std::pair("guess", "a job")})
    EXPECT_TRUE(absl::IsPermissionDenied(OpenMessage(DeriveSealKey(secret, label).value(), sealed).status()));
}

TEST(SealedMessage, AnyChangedOrMissingByteIsNoticed) {
  const std::string key = RandomBytes(kSealKeySize).value();
  const std::string sealed = SealMessage(key, "hello").value();
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_TRUE(absl::IsPermissionDenied(OpenMessage(key, changed).status())) << i;
    EXPECT_TRUE(absl::IsPermissionDenied(OpenMessage(key, sealed.substr(0, i)).status())) << i;
  }
}

TEST(SealedRecords, ArriveWholeWhateverThePieces) {
  const std::string key = RandomBytes(kSealKeySize).value();
  RecordSealer sealer(key, 1);
  const std::string longer(200000, 'x');
  std::string bytes = sealer.Seal("one").value();
  bytes += sealer.Seal("").value();
  bytes += sealer.Seal(longer).value();
  for (const size_t piece : {1u, 7u, 100000u, 1000000u}) {
    RecordOpener opener(key, 1);
    std::string plain;
    for (size_t at = 0; at < bytes.size(); at += piece)
      ASSERT_TRUE(opener.Open(absl::string_view(bytes).substr(at, piece), &plain).ok());
    EXPECT_EQ(plain, "one" + longer);
  }
}

TEST(SealedRecords, RepeatedSwappedOrTurnedAroundAreRefused) {
  const std::string key = RandomBytes(kSealKeySize).value();
  RecordSealer sealer(key, 1);
  const std::string first = sealer.Seal("first").value(), second = sealer.Seal("second").value();
  const auto open = [&](uint8_t direction, const std::string& bytes) {
    RecordOpener opener(key, direction);
    std::string plain;
    return opener.Open(bytes, &plain);
  };
  EXPECT_TRUE(open(1, first + second).ok());
  for (const std::string& bytes : {first + first, second + first, second})
    EXPECT_TRUE(absl::IsPermissionDenied(open(1, bytes)));
  EXPECT_TRUE(absl::IsPermissionDenied(open(2, first)));
  EXPECT_TRUE(absl::IsPermissionDenied(open(1, std::string("\xff\xff\xff\xff", 4))));
}

}  // namespace
}  // namespace millrace::net
