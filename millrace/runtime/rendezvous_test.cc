#include "millrace/runtime/rendezvous.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

RendezvousItem Item(float v) { return {Tensor::Scalar(v), false}; }

TEST(RendezvousTest, TensorArrivesInEitherOrder) {
  LocalRendezvous rendezvous;
  std::optional<StatusOr<RendezvousItem>> got;
  const auto keep = [&](StatusOr<RendezvousItem> item) { got = std::move(item); };
  ASSERT_TRUE(rendezvous.Send("a", Item(1)).ok());
  rendezvous.Recv("a", keep);
  ASSERT_TRUE(got.has_value() && got->ok());
  EXPECT_EQ((*got)->tensor.scalar<float>(), 1);

  got.reset();
  rendezvous.Recv("b", keep);
  EXPECT_FALSE(got.has_value());
  ASSERT_TRUE(rendezvous.Send("b", {Tensor(), true}).ok());
  ASSERT_TRUE(got.has_value() && got->ok());
  EXPECT_TRUE((*got)->is_dead);
}

TEST(RendezvousTest, AbortReachesPendingAndLaterRecv) {
  LocalRendezvous rendezvous;
  Status pending, later;
  rendezvous.Recv("a", [&](StatusOr<RendezvousItem> item) { pending = item.status(); });
  rendezvous.Abort(Unavailable("peer is gone"));
  EXPECT_EQ(pending.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(pending.message().find("peer is gone"), absl::string_view::npos);
  EXPECT_NE(pending.message().find("receiving a"), absl::string_view::npos);
  rendezvous.Abort(Internal("a later reason"));
  rendezvous.Recv("b", [&](StatusOr<RendezvousItem> item) { later = item.status(); });
  EXPECT_EQ(later.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(rendezvous.Send("c", Item(1)).code(), absl::StatusCode::kUnavailable);
}

TEST(RendezvousTest, AKeyIsUsedOnce) {
  LocalRendezvous rendezvous;
  ASSERT_TRUE(rendezvous.Send("a", Item(1)).ok());
  EXPECT_EQ(rendezvous.Send("a", Item(2)).code(), absl::StatusCode::kAlreadyExists);
  Status second;
  rendezvous.Recv("b", [](StatusOr<RendezvousItem>) {});
  rendezvous.Recv("b", [&](StatusOr<RendezvousItem> item) { second = item.status(); });
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
}

TEST(RendezvousTest, DestructionAnswersWhoeverWaits) {
  Status status;
  {
    LocalRendezvous rendezvous;
    rendezvous.Recv("a", [&](StatusOr<RendezvousItem> item) { status = item.status(); });
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST(RendezvousTest, EveryTensorOfManyThreadsArrivesOnce) {
  constexpr int kKeys = 2000;
  LocalRendezvous rendezvous;
  std::atomic<int64_t> sum{0};
  {
    ThreadPool pool("rendezvous", 4);
    for (int i = 0; i < kKeys; ++i) {
      const std::string key = absl::StrCat("k", i);
      pool.Schedule([&, key, i] { ASSERT_TRUE(rendezvous.Send(key, Item(i)).ok()); });
      pool.Schedule([&, key] {
        rendezvous.Recv(
            key, [&](StatusOr<RendezvousItem> item) { sum += static_cast<int64_t>(item->tensor.scalar<float>()); });
      });
    }
  }
  EXPECT_EQ(sum, int64_t{kKeys} * (kKeys - 1) / 2);
}

}  // namespace
}  // namespace millrace
