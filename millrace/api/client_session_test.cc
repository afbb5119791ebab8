#include "millrace/api/client_session.h"

#include <gtest/gtest.h>

#include <thread>

#include "millrace/millrace.h"

namespace millrace {
namespace {

TEST(ClientSession, RunsThatBeginAtOnceHandTheGraphOverOnce) {
  for (int round = 0; round < 20; ++round) {
    const Scope scope = Scope::NewRoot();
    Output sum = ops::Const(scope, 0);
    for (int i = 0; i < 100; ++i) sum = ops::Add(scope, sum, 1);
    ClientSession session = ClientSession::Create(scope).value();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const StatusOr<Tensors> told = session.Run({sum});
        ASSERT_TRUE(told.ok()) << told.status();
        EXPECT_EQ((*told)[0].scalar<int32_t>(), 100);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(ClientSession, WhatWasBuiltAfterARunIsPickedUpByTheNext) {
  const Scope scope = Scope::NewRoot();
  const Output one = ops::Const(scope, 1);
  ClientSession session = ClientSession::Create(scope).value();
  EXPECT_EQ(session.Run({one}).value()[0].scalar<int32_t>(), 1);
  const Output two = ops::Add(scope, one, 1);
  EXPECT_EQ(session.Run({two}).value()[0].scalar<int32_t>(), 2);
}

}  // namespace
}  // namespace millrace
