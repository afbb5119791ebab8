#include "millrace/runtime/variable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

Status AddOne(const Tensor& old_value, Tensor* new_value) {
  const absl::Span<const float> from = old_value.flat<float>();
  std::transform(from.begin(), from.end(), new_value->data<float>(), [](float v) { return v + 1; });
  return absl::OkStatus();
}

RefPtr<Variable> Zeros(std::string name, int64_t n) {
  auto v = MakeRef<Variable>(std::move(name), DType::kFloat, PartialShape({n}));
  Tensor zeros(DType::kFloat, Shape({n}));
  std::fill_n(zeros.data<float>(), n, 0.0f);
  MR_CHECK(v->Assign(std::move(zeros)).ok());
  return v;
}

TEST(VariableTest, UninitializedReadAndUpdateNameTheVariable) {
  static const PartialShape shape({2});
  Variable v("layer/w", DType::kFloat, shape);
  EXPECT_FALSE(v.IsInitialized());
  for (const Status& status : {v.Read().status(), v.UpdateDense(AddOne)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("layer/w"), absl::string_view::npos);
  }
}

TEST(VariableTest, AssignChecksTypeAndShape) {
  static const PartialShape shape({-1, 2});
  Variable v("w", DType::kFloat, shape);
  EXPECT_EQ(v.Assign(Tensor::Of<double>({1, 2})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(v.Assign(Tensor::Of<float>({1, 2})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(v.Assign(Tensor::Of<float>({1, 2}), /*validate_shape=*/false).ok());
  EXPECT_TRUE(v.Assign(Tensor::Of<float>(Shape({1, 2}), {1, 2})).ok());
}

TEST(VariableTest, UpdateWritesInPlaceWhenNobodyLooks) {
  RefPtr<Variable> v = Zeros("w", 4);
  const float* before = v->Read()->data<float>();
  ASSERT_TRUE(v->UpdateDense(AddOne).ok());
  EXPECT_EQ(v->Read()->data<float>(), before);
  EXPECT_EQ(v->Read()->data<float>()[3], 1);
}

TEST(VariableTest, SnapshotIsNotTouchedByLaterUpdates) {
  RefPtr<Variable> v = Zeros("w", 4);
  const Tensor snapshot = v->Read().value();
  ASSERT_TRUE(v->UpdateDense(AddOne).ok());
  ASSERT_TRUE(v->UpdateDense(AddOne).ok());
  EXPECT_EQ(snapshot.data<float>()[0], 0);
  EXPECT_EQ(v->Read()->data<float>()[0], 2);
}

TEST(VariableTest, ReadersAndUpdatesInTurnUseTwoBuffers) {
  RefPtr<Variable> v = Zeros("w", 4);
  std::vector<const float*> seen;
  for (int i = 0; i < 6; ++i) {
    const Tensor snapshot = v->Read().value();
    seen.push_back(snapshot.data<float>());
    ASSERT_TRUE(v->UpdateDense(AddOne).ok());
  }
  EXPECT_NE(seen[0], seen[1]);
  for (int i = 2; i < 6; ++i) EXPECT_EQ(seen[i], seen[i - 2]);
}

TEST(VariableTest, FailedUpdateWithReadersLeavesTheValue) {
  RefPtr<Variable> v = Zeros("w", 4);
  const Tensor snapshot = v->Read().value();
  EXPECT_FALSE(v->UpdateDense([](const Tensor&, Tensor* t) {
                  t->data<float>()[0] = 5;
                  return Internal("no");
                }).ok());
  EXPECT_EQ(v->Read()->data<float>(), snapshot.data<float>());
  EXPECT_EQ(snapshot.data<float>()[0], 0);
}

TEST(VariableTest, AssignOfASmallPieceDoesNotKeepTheWhole) {
  Variable v("w", DType::kFloat, PartialShape());
  const Tensor large(DType::kFloat, Shape({100, 100}));
  ASSERT_TRUE(v.Assign(large.Row(3)).ok());
  EXPECT_FALSE(v.Read()->SharesBufferWith(large));
}

TEST(VariableTest, SameVariableTwiceIsAnErrorNotADeadlock) {
  RefPtr<Variable> v = Zeros("w", 4);
  Variable* const twice[] = {v.get(), v.get()};
  const auto nothing = [](absl::Span<const Tensor>, absl::Span<Tensor>) { return absl::OkStatus(); };
  EXPECT_EQ(Variable::UpdateDense(twice, nothing).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(v->UpdateDense(AddOne).ok());
}

TEST(VariableTest, UpdateInPlaceCopiesOnlyForReaders) {
  RefPtr<Variable> v = Zeros("w", 4);
  Variable* const one[] = {v.get()};
  const auto set_second = [](absl::Span<Tensor> values) {
    values[0].data<float>()[1] += 7;
    return absl::OkStatus();
  };
  const float* before = v->Read()->data<float>();
  ASSERT_TRUE(Variable::UpdateInPlace(one, set_second).ok());
  EXPECT_EQ(v->Read()->data<float>(), before);
  const Tensor snapshot = v->Read().value();
  ASSERT_TRUE(Variable::UpdateInPlace(one, set_second).ok());
  EXPECT_EQ(snapshot.data<float>()[1], 7);
  EXPECT_EQ(v->Read()->data<float>()[1], 14);
  EXPECT_EQ(v->Read()->data<float>()[0], 0);
}

TEST(VariableTest, MultiUpdateMixesSharedAndUnsharedVariables) {
  RefPtr<Variable> a = Zeros("a", 2), b = Zeros("b", 3);
  const Tensor snapshot = a->Read().value();
  Variable* const both[] = {b.get(), a.get()};
  ASSERT_TRUE(Variable::UpdateDense(both, [](absl::Span<const Tensor> old, absl::Span<Tensor> next) {
                MR_CHECK(old[0].dim(0) == 3 && next[1].dim(0) == 2);
                MR_RETURN_IF_ERROR(AddOne(old[0], &next[0]));
                return AddOne(old[1], &next[1]);
              }).ok());
  EXPECT_EQ(snapshot.data<float>()[0], 0);
  EXPECT_EQ(a->Read()->data<float>()[1], 1);
  EXPECT_EQ(b->Read()->data<float>()[2], 1);
}

// All elements are equal at all times; a reader that sees two different ones saw a torn value.
TEST(VariableTest, ConcurrentReadersNeverSeeATornValueAndNoUpdateIsLost) {
  constexpr int kUpdaters = 3, kReaders = 3, kUpdates = 400;
  RefPtr<Variable> a = Zeros("a", 5000), b = Zeros("b", 5000);
  std::atomic<int> torn{0}, failed{0};
  std::atomic<int> updaters_left{kUpdaters};
  {
    ThreadPool pool("variable", kUpdaters + kReaders);
    for (int u = 0; u < kUpdaters; ++u) {
      pool.Schedule([&, u] {
        for (int i = 0; i < kUpdates; ++i) {
          Status status;
          if (u == 0) {
            status = a->UpdateDense(AddOne);
            if (status.ok()) status = b->UpdateDense(AddOne);
          } else {
            Variable* const ab[] = {a.get(), b.get()};
            Variable* const ba[] = {b.get(), a.get()};
            status = Variable::UpdateDense(u == 1 ? ab : ba, [](absl::Span<const Tensor> old, absl::Span<Tensor> next) {
              MR_RETURN_IF_ERROR(AddOne(old[0], &next[0]));
              return AddOne(old[1], &next[1]);
            });
          }
          if (!status.ok()) ++failed;
        }
        --updaters_left;
      });
    }
    for (int r = 0; r < kReaders; ++r) {
      pool.Schedule([&, r] {
        while (updaters_left > 0) {
          const Tensor value = (r % 2 == 0 ? a : b)->Read().value();
          const absl::Span<const float> flat = value.flat<float>();
          if (std::adjacent_find(flat.begin(), flat.end(), std::not_equal_to<float>()) != flat.end()) {
            ++torn;
          }
        }
      });
    }
  }
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(a->Read()->data<float>()[0], kUpdaters * kUpdates);
  EXPECT_EQ(b->Read()->data<float>()[4999], kUpdaters * kUpdates);
}

RefPtr<Variable> Table(std::string name, int64_t rows, int64_t columns) {
  auto v = MakeRef<Variable>(std::move(name), DType::kFloat, PartialShape({rows, columns}));
  Tensor zeros(DType::kFloat, Shape({rows, columns}));
  std::fill_n(zeros.data<float>(), rows * columns, 0.0f);
  MR_CHECK(v->Assign(std::move(zeros)).ok());
  return v;
}

// Adds one to all elements of some rows, of all variables.
Status AddToRows(const Variable::Rows& rows, absl::Span<const int64_t> which) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const RowLayout layout(rows.values[0]);
  for (const int64_t row : which) {
    const int stripe = layout.StripeOfRow(row);
    for (const int i : rows.order) rows.locks[i]->stripe(stripe).Lock();
    for (Tensor& value : rows.values) {
      float* const at = value.data<float>() + row * layout.row_size;
      for (int64_t k = 0; k < layout.row_size; ++k) at[k] += 1;
    }
    for (const int i : rows.order) rows.locks[i]->stripe(stripe).Unlock();
  }
  return absl::OkStatus();
}

Status AddToRows(absl::Span<Variable* const> variables, absl::Span<const int64_t> which) {
  return Variable::UpdateRows(variables, [&](const Variable::Rows& rows) { return AddToRows(rows, which); });
}

bool IsUniform(absl::Span<const float> x) {
  return std::adjacent_find(x.begin(), x.end(), std::not_equal_to<float>()) == x.end();
}

TEST(VariableTest, UpdatesByRowsLeaveTheMemoryWhereItIsAndSnapshotsAlone) {
  RefPtr<Variable> v = Table("w", 8, 3);
  Variable* const only[] = {v.get()};
  const float* const before = v->Read()->data<float>();
  ASSERT_TRUE(AddToRows(only, {1, 5, 5}).ok());
  const Tensor snapshot = v->Read().value();
  ASSERT_TRUE(AddToRows(only, {5}).ok());
  EXPECT_EQ(snapshot.data<float>()[15], 2);
  ASSERT_TRUE(v->ReadRows([&](const Tensor& value, RowLocks&) {
                 EXPECT_EQ(value.data<float>(), before);
                 EXPECT_EQ(value.data<float>()[15], 3);
                 return absl::OkStatus();
               }).ok());
  // The first update by rows of a value that a reader holds copies it, once.
  ASSERT_TRUE(v->UpdateDense(AddOne).ok());
  const Tensor held = v->Read().value();
  ASSERT_TRUE(AddToRows(only, {0}).ok());
  EXPECT_EQ(held.data<float>()[0], 1);
  EXPECT_EQ(v->Read()->data<float>()[0], 2);
}

TEST(VariableTest, UpdateByRowsOfNothingOrTwiceTheSameIsAnError) {
  static const PartialShape shape({2});
  RefPtr<Variable> empty = MakeRef<Variable>("layer/w", DType::kFloat, shape), v = Table("v", 2, 1);
  Variable* const with_empty[] = {v.get(), empty.get()};
  EXPECT_EQ(AddToRows(with_empty, {0}).code(), absl::StatusCode::kFailedPrecondition);
  Variable* const twice[] = {v.get(), v.get()};
  EXPECT_EQ(AddToRows(twice, {0}).code(), absl::StatusCode::kInvalidArgument);
  Variable* const once[] = {v.get()};
  EXPECT_TRUE(AddToRows(once, {0}).ok());
}

// All elements of a row are equal at all times. After a dense update alone, and in what it hands out, all
// rows of a snapshot differ only by what updates by rows added to them.
TEST(VariableTest, ReadersOfRowsAndOfTheWholeNeverSeeATornRowBesideDenseAndSparseUpdates) {
  constexpr int64_t kRows = 300, kColumns = 129;
  constexpr int kUpdates = 300, kDense = 2, kSparse = 3;
  RefPtr<Variable> a = Table("a", kRows, kColumns), b = Table("b", kRows, kColumns);
  std::atomic<int> torn{0}, failed{0}, updaters_left{kDense + kSparse};
  {
    ThreadPool pool("variable", kDense + kSparse + 3);
    for (int u = 0; u < kDense; ++u) {
      pool.Schedule([&, u] {
        for (int i = 0; i < kUpdates; ++i) {
          if (!(u == 0 ? a : b)->UpdateDense(AddOne).ok()) ++failed;
          Variable* const ba[] = {b.get(), a.get()};
          if (!Variable::UpdateDense(ba, [](absl::Span<const Tensor> old, absl::Span<Tensor> next) {
                 MR_RETURN_IF_ERROR(AddOne(old[0], &next[0]));
                 return AddOne(old[1], &next[1]);
               }).ok()) {
            ++failed;
          }
        }
        --updaters_left;
      });
    }
    for (int u = 0; u < kSparse; ++u) {
      pool.Schedule([&, u] {
        Variable* const ab[] = {a.get(), b.get()};
        Variable* const ba[] = {b.get(), a.get()};
        for (int i = 0; i < kUpdates; ++i) {
          // Row 0, of which all updaters are fond, and some others.
          const int64_t rows[] = {0, (i * 7 + u) % kRows, (i * 13) % kRows, 0};
          if (!AddToRows(u % 2 == 0 ? ab : ba, rows).ok()) ++failed;
        }
        --updaters_left;
      });
    }
    pool.Schedule([&] {  // a checkpoint
      while (updaters_left > 0) {
        const Tensor value = a->Read().value();
        for (int64_t r = 0; r < kRows; ++r) {
          if (!IsUniform(value.Row(r).flat<float>())) ++torn;
        }
      }
    });
    for (int r = 0; r < 2; ++r) {
      pool.Schedule([&, r] {  // gathers
        std::vector<float> row(kColumns);
        while (updaters_left > 0) {
          const Status status = (r == 0 ? a : b)->ReadRows([&](const Tensor& value, RowLocks& locks) {
            const RowLayout layout(value);
            for (const int64_t at : {0, 1, 17, 299}) {
              MutexLock lock(&locks.stripe(layout.StripeOfRow(at)));
              std::copy_n(value.data<float>() + at * kColumns, kColumns, row.begin());
              if (!IsUniform(row)) ++torn;
            }
            return absl::OkStatus();
          });
          if (!status.ok()) ++failed;
        }
      });
    }
  }
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(failed, 0);
  // No update was lost: row 0 had all of them, twice in each update by rows and more.
  std::vector<int> sparse(kRows, 0);
  for (int u = 0; u < kSparse; ++u) {
    for (int i = 0; i < kUpdates; ++i) {
      for (const int64_t row : {int64_t{0}, (i * 7 + u) % kRows, (i * 13) % kRows, int64_t{0}}) ++sparse[row];
    }
  }
  const Tensor end_a = a->Read().value(), end_b = b->Read().value();
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(end_a.Row(r).data<float>()[0], 3 * kUpdates + sparse[r]) << r;
    EXPECT_EQ(end_b.Row(r).data<float>()[kColumns - 1], 3 * kUpdates + sparse[r]) << r;
  }
}

}  // namespace
}  // namespace millrace
