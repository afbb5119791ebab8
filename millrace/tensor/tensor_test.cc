#include "millrace/tensor/tensor.h"

#include <gtest/gtest.h>

#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace {
namespace {

TEST(BufferTest, HeapMemoryIsAlignedForEverySize) {
  for (size_t bytes : {0, 1, 4, 63, 64, 65, 4096, 1 << 20}) {
    const RefPtr<Buffer> buffer = Allocator::Heap()->Allocate(bytes);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    std::memset(buffer->data(), 1, bytes);
  }
}

TEST(BufferTest, SizesBeyondTheAddressSpaceGiveNoMemory) {
  EXPECT_FALSE(Allocator::Heap()->Allocate(~size_t{0}));
  EXPECT_FALSE(Allocator::Heap()->Allocate(~size_t{0} / 2));
}

TEST(MemoryBudgetTest, BuffersCountUntilTheyAreFreed) {
  MemoryBudget* const process = MemoryBudget::Process();
  const size_t before = process->used();
  {
    const Tensor large(DType::kFloat, Shape({1 << 20}));
    EXPECT_EQ(process->used(), before + (4 << 20));
  }
  EXPECT_EQ(process->used(), before);
  // Small ones are counted in batches.
  std::vector<Tensor> many;
  for (int i = 0; i < 4096; ++i) many.emplace_back(DType::kFloat, Shape({1 << 10}));
  EXPECT_GE(process->used(), before + (15 << 20));
  many.clear();
  EXPECT_LE(process->used(), before + (1 << 20));
}

TEST(MemoryBudgetTest, MoreThanTheLimitIsRefusedAndTheMessageNamesIt) {
  MemoryBudget* const process = MemoryBudget::Process();
  const size_t limit = process->limit();
  EXPECT_GT(limit, 0u);
  process->set_limit(process->used() + (1 << 20));
  const Status status = Tensor::Make(DType::kFloat, Shape({1 << 20})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("this process uses"), absl::string_view::npos) << status;
  EXPECT_THROW(Tensor(DType::kFloat, Shape({1 << 20})), OutOfMemory);
  EXPECT_TRUE(Tensor::Make(DType::kFloat, Shape({1 << 17})).ok());
  process->set_limit(limit);
  EXPECT_TRUE(Tensor::Make(DType::kFloat, Shape({1 << 20})).ok());
}

TEST(TensorTest, MakeSaysWhyItCannot) {
  EXPECT_EQ(Tensor::Make(static_cast<DType>(33), Shape({2})).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Make(DType::kDouble, Shape({int64_t{1} << 61})).status().code(),
            absl::StatusCode::kInvalidArgument);
  // Shape's constructor trusts; a product that wraps around must not become a small tensor.
  EXPECT_EQ(Tensor::Make(DType::kFloat, Shape({int64_t{1} << 32, int64_t{1} << 32})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Make(DType::kFloat, Shape({int64_t{1} << 60})).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(TensorTest, CopiesShareAndClonesDoNot) {
  Tensor a = Tensor::Of<float>({1, 2, 3});
  EXPECT_TRUE(a.RefCountIsOne());
  const Tensor b = a;
  EXPECT_FALSE(a.RefCountIsOne());
  EXPECT_TRUE(b.SharesBufferWith(a));
  const Tensor c = a.Clone();
  EXPECT_FALSE(c.SharesBufferWith(a));
  a.data<float>()[0] = 9;
  EXPECT_EQ(b.data<float>()[0], 9);
  EXPECT_EQ(c.data<float>()[0], 1);
}

TEST(TensorTest, StringsAreConstructedCopiedAndDestroyed) {
  Tensor a(DType::kString, Shape({2, 2}));
  EXPECT_EQ(a.data<std::string>()[3], "");
  a.data<std::string>()[3] = std::string(1000, 'x');
  const Tensor b = a.Clone();
  a.data<std::string>()[3] = "y";
  EXPECT_EQ(b.data<std::string>()[3].size(), 1000u);
}

TEST(TensorTest, SlicesLieInTheSameMemory) {
  const Tensor a = Tensor::Of<int32_t>(Shape({3, 2}), {1, 2, 3, 4, 5, 6});
  const Tensor s = a.Slice(1, 3);
  EXPECT_EQ(s.shape(), Shape({2, 2}));
  EXPECT_EQ(s.data<int32_t>(), a.data<int32_t>() + 2);
  EXPECT_TRUE(s.SharesBufferWith(a));
  const Tensor row = a.Row(2);
  EXPECT_EQ(row.shape(), Shape({2}));
  EXPECT_EQ(row.data<int32_t>()[1], 6);
  EXPECT_EQ(a.Slice(3, 3).num_elements(), 0);
}

TEST(TensorTest, SliceOutlivesTheWhole) {
  Tensor s;
  {
    const Tensor a = Tensor::Of<std::string>({"one", "two"});
    s = a.Slice(1, 2);
  }
  EXPECT_EQ(s.data<std::string>()[0], "two");
}

TEST(TensorTest, ReshapeKeepsTheNumberOfElements) {
  const Tensor a = Tensor::Of<int64_t>({1, 2, 3, 4});
  EXPECT_EQ(a.Reshaped(Shape({2, 2})).value().data<int64_t>(), a.data<int64_t>());
  const Status status = a.Reshaped(Shape({3})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("[3]"), absl::string_view::npos);
}

TEST(TensorTest, DebugStringShowsTypeShapeAndElements) {
  EXPECT_EQ(Tensor::Of<float>(Shape({2, 3}), {1, 2, 3, 4, 5, 6}).DebugString(), "float[2,3] [[1 2 3] [4 5 6]]");
  EXPECT_EQ(Tensor::Scalar<float>(0.5f).DebugString(), "float[] 0.5");
  EXPECT_EQ(Tensor::Of<int8_t>({-1, 65}).DebugString(), "int8[2] [-1 65]");
  EXPECT_EQ(Tensor::Of<bool>({true, false}).DebugString(), "bool[2] [true false]");
  EXPECT_EQ(Tensor::Of<half>({half(1.5f)}).DebugString(), "half[1] [1.5]");
  EXPECT_EQ(Tensor::Of<std::complex<float>>({{1, -2}}).DebugString(), "complex64[1] [(1,-2)]");
  EXPECT_EQ(Tensor::Scalar("a\"\n").DebugString(), "string[] \"a\\\"\\n\"");
  EXPECT_EQ(Tensor(DType::kFloat, Shape({0, 3})).DebugString(), "float[0,3] []");
  EXPECT_EQ(Tensor().DebugString(), "no tensor");
}

TEST(TensorTest, DebugStringStopsAtTheLimit) {
  EXPECT_EQ(Tensor::Of<int32_t>(Shape({2, 3}), {1, 2, 3, 4, 5, 6}).DebugString(4), "int32[2,3] [[1 2 3] [4 ...]]");
  EXPECT_EQ(Tensor::Of<int32_t>(Shape({2, 2}), {1, 2, 3, 4}).DebugString(2), "int32[2,2] [[1 2] ...]");
}

TEST(TensorTest, ReferencesAreHandles) {
  Tensor ref(RefType(DType::kFloat), Shape());
  ref.scalar<ResourceHandle>().name = "w";
  EXPECT_EQ(ref.Clone().scalar<ResourceHandle>().name, "w");
  EXPECT_NE(ref.DebugString().find("w"), std::string::npos);
}

}  // namespace
}  // namespace millrace
