#include "millrace/collective/lent_memory.h"

#include <vector>

#include "gtest/gtest.h"

namespace millrace::collective {
namespace {

MemoryOffer Copied(const MemoryOffer& offer) {
  const net::Bytes bytes = net::Bytes::Of(EncodeOffer(offer));
  net::BytesReader reader(bytes);
  MemoryOffer copy;
  EXPECT_TRUE(ReadOffer(&reader, &copy));
  return copy;
}

TEST(LentMemory, IsReadThroughAnOffer) {
  const auto memory = LentMemory::Open(Copied(OwnMemory()));
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::string text(100000, 'x');
  std::vector<char> copy(text.size());
  ASSERT_TRUE((*memory)->Read(reinterpret_cast<uintptr_t>(text.data()), copy.data(), copy.size()).ok());
  EXPECT_EQ(std::string(copy.data(), copy.size()), text);
  EXPECT_TRUE(absl::IsUnavailable((*memory)->Read(16, copy.data(), copy.size()))) << "nothing is there";
}

TEST(LentMemory, AnotherProcessIsNotReadInItsPlace) {
  MemoryOffer wrong = OwnMemory();
  wrong.probe[0] ^= 1;
  EXPECT_FALSE(LentMemory::Open(wrong).ok());
  wrong = OwnMemory();
  wrong.process = 4194305;  // more than there can be
  EXPECT_FALSE(LentMemory::Open(wrong).ok());
}

TEST(LentMemory, ACutOfferIsRefused) {
  const std::string text = EncodeOffer(OwnMemory());
  for (size_t size = 0; size < text.size(); ++size) {
    const net::Bytes bytes = net::Bytes::Of(text.substr(0, size));
    net::BytesReader reader(bytes);
    MemoryOffer offer;
    EXPECT_FALSE(ReadOffer(&reader, &offer)) << size;
  }
}

}  // namespace
}  // namespace millrace::collective
