// What is computed without the library's function must be what that gives, for every kind of number.
#include <bit>
#include <cmath>
#include <random>
#include <unordered_map>

#include "gtest/gtest.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

// Any bits at all, and all pairs of what is special.
template <typename T, typename Bits>
void PairsOf(Tensor* a, Tensor* b) {
  const T inf = std::numeric_limits<T>::infinity(), tiny = std::numeric_limits<T>::denorm_min(),
          most = std::numeric_limits<T>::max();
  const std::vector<T> special = {T(0), T(-0.0), T(1), T(-1), tiny,           -tiny, std::numeric_limits<T>::min(),
                                  most, -most,   inf,  -inf,  T(std::nan(""))};
  std::mt19937_64 random(1);
  *a = Tensor(DTypeOf<T>(), Shape({100000}));
  *b = Tensor(DTypeOf<T>(), Shape({100000}));
  for (size_t i = 0; i < 100000; ++i) {
    const size_t n = special.size();
    a->data<T>()[i] = i < n * n ? special[i / n] : std::bit_cast<T>(static_cast<Bits>(random()));
    b->data<T>()[i] = i < n * n ? special[i % n] : std::bit_cast<T>(static_cast<Bits>(random()));
  }
}

template <typename T>
bool Same(T x, T y) {
  return std::isnan(x) ? std::isnan(y) : std::memcmp(&x, &y, sizeof(T)) == 0;
}

template <typename T, typename Bits>
void Compare(const std::string& op, T (*reference)(T, T)) {
  Tensor a, b;
  PairsOf<T, Bits>(&a, &b);
  const Tensor got = RunOp(op, {a, b}).value()[0];
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const T x = a.data<T>()[i], y = b.data<T>()[i];
    ASSERT_TRUE(Same(got.data<T>()[i], reference(x, y)))
        << op << " of " << x << " and " << y << " gave " << got.data<T>()[i];
  }
}

TEST(NextAfterTest, GivesTheNeighbourOfEveryKindOfNumber) {
  Compare<float, uint32_t>("NextAfter", [](float x, float y) { return std::nextafter(x, y); });
  Compare<double, uint64_t>("NextAfter", [](double x, double y) { return std::nextafter(x, y); });
}

TEST(ModTest, GivesTheRemainderOfEveryKindOfNumber) {
  Compare<float, uint32_t>("Mod", [](float x, float y) { return std::fmod(x, y); });
  Compare<double, uint64_t>("Mod", [](double x, double y) { return std::fmod(x, y); });
}

TEST(UniqueTest, NumbersManyElementsInTheOrderTheyComeFirst) {
  std::mt19937 random(2);
  Tensor x(DType::kInt64, Shape({50000}));
  for (int64_t& v : x.flat<int64_t>()) v = static_cast<int64_t>(random() % 20000) << 40;
  const std::vector<Tensor> got = RunOp("UniqueWithCounts", {x}).value();
  std::unordered_map<int64_t, int32_t> numbers, counts;
  std::vector<int64_t> firsts;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const int64_t v = x.data<int64_t>()[i];
    const int32_t number = numbers.emplace(v, static_cast<int32_t>(numbers.size())).first->second;
    if (number == static_cast<int32_t>(firsts.size())) firsts.push_back(v);
    ++counts[number];
    ASSERT_EQ(got[1].data<int32_t>()[i], number);
  }
  ASSERT_EQ(got[0].num_elements(), static_cast<int64_t>(firsts.size()));
  for (size_t i = 0; i < firsts.size(); ++i) {
    ASSERT_EQ(got[0].data<int64_t>()[i], firsts[i]);
    ASSERT_EQ(got[2].data<int32_t>()[i], counts[static_cast<int32_t>(i)]);
  }
}

}  // namespace
}  // namespace millrace
