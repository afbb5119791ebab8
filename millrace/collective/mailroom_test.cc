#include "millrace/collective/mailroom.h"

#include <fcntl.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "gtest/gtest.h"

namespace millrace::collective {
namespace {

using Left = Mailbox::Left;

std::string Taken(Mailroom& room, int from) {
  std::string message;
  const StatusOr<bool> taken = room.Take(from, &message);
  EXPECT_TRUE(taken.ok()) << taken.status();
  return taken.ok() && *taken ? message : "(none)";
}

MailroomOffer Passed(const MailroomOffer& offer) {
  const net::Bytes bytes = net::Bytes::Of(EncodeMailroomOffer(offer));
  net::BytesReader reader(bytes);
  MailroomOffer passed;
  EXPECT_TRUE(ReadMailroomOffer(&reader, &passed));
  return passed;
}

TEST(Mailroom, MessagesOfEachSenderAreTakenInOrder) {
  auto room = Mailroom::Make(3).value();
  auto one = Mailbox::Open(Passed(room->offer()), 3, 1).value(), two = Mailbox::Open(room->offer(), 3, 2).value();
  EXPECT_EQ(Taken(*room, 1), "(none)");
  EXPECT_EQ(one->Leave(net::Bytes::Of("a")), Left::kYes);
  net::Bytes pieces = net::Bytes::Of("b");
  pieces.Append(net::Bytes::Of("c"));
  EXPECT_EQ(one->Leave(pieces), Left::kYes);
  EXPECT_EQ(two->Leave(net::Bytes()), Left::kYes);
  EXPECT_EQ(Taken(*room, 1), "a");
  EXPECT_EQ(Taken(*room, 1), "bc");
  EXPECT_EQ(Taken(*room, 1), "(none)");
  EXPECT_EQ(Taken(*room, 2), "");
  EXPECT_EQ(Taken(*room, 2), "(none)");
}

TEST(Mailroom, WhatDoesNotFitIsNotLeft) {
  auto room = Mailroom::Make(2).value();
  auto box = Mailbox::Open(room->offer(), 2, 0).value();
  EXPECT_EQ(box->Leave(net::Bytes::Of(std::string(200000, 'x'))), Left::kNo);
  int left = 0;
  while (box->Leave(net::Bytes::Of(std::string(1000, 'x'))) == Left::kYes) ++left;
  EXPECT_GT(left, 100);
  for (int i = 0; i < left; ++i) EXPECT_EQ(Taken(*room, 0), std::string(1000, 'x'));
  EXPECT_EQ(Taken(*room, 0), "(none)");
  EXPECT_EQ(box->Leave(net::Bytes::Of("y")), Left::kYes) << "there is room again";
  EXPECT_EQ(Taken(*room, 0), "y");
}

TEST(Mailroom, AReceiverThatMustBeCalledGetsNothingMore) {
  auto room = Mailroom::Make(2).value();
  auto box = Mailbox::Open(room->offer(), 2, 0).value();
  room->set_must_call(true);
  EXPECT_EQ(box->Leave(net::Bytes::Of("x")), Left::kNo);
  room->set_must_call(false);
  EXPECT_EQ(box->Leave(net::Bytes::Of("x")), Left::kYes);
}

TEST(Mailroom, WhatIsLeftWhileTheReceiverStopsLookingIsFoundOrCalledFor) {
  auto room = Mailroom::Make(2).value();
  auto box = Mailbox::Open(room->offer(), 2, 0).value();
  constexpr int kMessages = 20000;
  std::atomic<int> by_call{0}, called{0};
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) {
      const Left left = box->Leave(net::Bytes::Of("x"));
      if (left == Left::kNo) ++by_call;
      if (left == Left::kCall) ++called;
    }
    room->bell()->Ring();
  });
  int taken = 0;
  for (bool must = false; taken + by_call.load() < kMessages; must = !must) {
    const uint32_t seen = room->bell()->rung();
    room->set_must_call(must);
    const int before = taken;
    while (Taken(*room, 0) != "(none)") ++taken;
    if (!must && taken == before && taken + by_call.load() < kMessages) room->bell()->Wait(seen);
  }
  sender.join();
  EXPECT_EQ(Taken(*room, 0), "(none)");
}

TEST(Mailroom, WhatIsNotAMailroomIsRefused) {
  auto room = Mailroom::Make(2).value();
  EXPECT_FALSE(Mailbox::Open(room->offer(), 3, 0).ok()) << "for another number of ranks";
  MailroomOffer wrong = room->offer();
  wrong.key[0] ^= 1;
  EXPECT_FALSE(Mailbox::Open(wrong, 2, 0).ok());
  wrong = room->offer();
  wrong.descriptor = 0;
  EXPECT_FALSE(Mailbox::Open(wrong, 2, 0).ok());
  wrong.descriptor = 1 << 30;
  EXPECT_FALSE(Mailbox::Open(wrong, 2, 0).ok());
  wrong = room->offer();
  wrong.process = 4194305;  // more than there can be
  EXPECT_FALSE(Mailbox::Open(wrong, 2, 0).ok());
  EXPECT_FALSE(Mailroom::Make(Mailroom::kMostRanks + 1).ok());
}

TEST(Mailroom, MemoryInDisorderIsAnError) {
  auto room = Mailroom::Make(2).value();
  const std::string path = absl::StrCat("/proc/self/fd/", room->offer().descriptor);
  const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  std::mt19937 random(1);
  int errors = 0;
  for (int i = 0; i < 1000; ++i) {
    // The head of the first ring, among others.
    char bytes[1024];
    for (char& byte : bytes) byte = random() % 4 == 0 ? static_cast<char>(random()) : '\0';
    ASSERT_EQ(pwrite(fd.get(), bytes, sizeof(bytes), 0), static_cast<ssize_t>(sizeof(bytes)));
    std::string message;
    errors += room->Take(0, &message).ok() ? 0 : 1;
  }
  EXPECT_GT(errors, 0);
}

TEST(Mailroom, ASlotIsInUseUntilItHasBeenReturnedAndReadAsOftenAsOffered) {
  auto room = Mailroom::Make(2).value();
  auto box = Mailbox::Open(room->offer(), 2, 1).value();
  char* const slot = room->TakeSlot();
  std::vector<char*> others;
  for (int i = 1; i < Mailroom::kSlots; ++i) others.push_back(room->TakeSlot());
  EXPECT_EQ(room->TakeSlot(), nullptr) << "all are in use";
  std::fill_n(slot, Mailroom::kSlotBytes, 'x');
  slot[1000] = 'y';
  const uint64_t all = room->Offer(slot, Mailroom::kSlotBytes), one = room->Offer(slot + 1000, 1);
  room->ReturnSlot(slot);
  EXPECT_EQ(room->TakeSlot(), nullptr) << "nobody has read it";
  EXPECT_EQ(*box->Offered(one, 1).value(), 'y');
  box->Release(one);
  EXPECT_EQ(room->TakeSlot(), nullptr);
  EXPECT_EQ(box->Offered(all, Mailroom::kSlotBytes).value()[Mailroom::kSlotBytes - 1], 'x');
  box->Release(all);
  EXPECT_EQ(room->TakeSlot(), slot);
  room->ReturnSlot(slot);
  EXPECT_FALSE(box->Offered(one, 1).ok()) << "it is not in use";
  for (const char* const other : others) room->ReturnSlot(other);
}

TEST(Mailroom, WhatIsOfferedOutsideOfASlotIsRefused) {
  auto room = Mailroom::Make(2).value();
  auto box = Mailbox::Open(room->offer(), 2, 1).value();
  const uint64_t begin = room->Offer(room->TakeSlot(), 1), end = begin + Mailroom::kSlotBytes;
  EXPECT_TRUE(box->Offered(begin, Mailroom::kSlotBytes).ok());
  EXPECT_FALSE(box->Offered(begin, Mailroom::kSlotBytes + 1).ok());
  EXPECT_FALSE(box->Offered(begin + 1, Mailroom::kSlotBytes).ok());
  EXPECT_FALSE(box->Offered(begin - 1, 1).ok());
  EXPECT_FALSE(box->Offered(end - 1, ~uint64_t{0}).ok());
  EXPECT_FALSE(box->Offered(end, 1).ok()) << "between two slots";
  EXPECT_FALSE(box->Offered(0, 1).ok());
  EXPECT_FALSE(box->Offered(~uint64_t{0}, 1).ok());
}

TEST(Mailroom, ACutOfferIsRefused) {
  const std::string text = EncodeMailroomOffer({.process = 300, .descriptor = 5});
  for (size_t size = 0; size < text.size(); ++size) {
    const net::Bytes bytes = net::Bytes::Of(text.substr(0, size));
    net::BytesReader reader(bytes);
    MailroomOffer offer;
    EXPECT_FALSE(ReadMailroomOffer(&reader, &offer)) << size;
  }
}

}  // namespace
}  // namespace millrace::collective
