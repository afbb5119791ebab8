#include <bit>
#include <utility>

#include "millrace/ops/data_flow/gradient_sum.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class DenseGradientSum : public GradientSum {
 public:
  DenseGradientSum(DType dtype, PartialShape shape) : dtype_(dtype), shape_(std::move(shape)) {}

  Status Add(const GradientPart& part) override {
    const Tensor& gradient = *part.values;
    if (gradient.dtype() != dtype_) {
      return InvalidArgument("the accumulator takes gradients of ", dtype_, ", got ", gradient.dtype());
    }
    if (!shape_.IsCompatibleWith(gradient.shape())) return WrongShape(shape_.ToString(), gradient);
    if (count_ > 0 && sum_.shape() != gradient.shape()) return WrongShape(sum_.shape().ToString(), gradient);
    if (count_ == 0) {
      sum_ = gradient;
      owned_ = false;
    } else {
      if (count_ > 1) {
        MR_RETURN_IF_ERROR(Replace([&](auto* to, const auto* sum, const auto* last, int64_t n) {
          for (int64_t i = 0; i < n; ++i) to[i] = sum[i] + last[i];
        }));
      }
      last_ = gradient;
    }
    ++count_;
    return absl::OkStatus();
  }

  StatusOr<std::vector<Tensor>> Take(bool mean) override {
    if (count_ > 1) {
      MR_RETURN_IF_ERROR(Replace([&](auto* to, const auto* sum, const auto* last, int64_t n) {
        using T = std::decay_t<decltype(*to)>;
        const T count = static_cast<T>(static_cast<float>(mean ? count_ : 1));
        if (mean && !std::has_single_bit(static_cast<uint64_t>(count_))) {
          for (int64_t i = 0; i < n; ++i) to[i] = (sum[i] + last[i]) / count;
        } else {
          // For a power of two, multiplying by the reciprocal is bit-identical to dividing.
          const T factor = T(1) / count;
          for (int64_t i = 0; i < n; ++i) to[i] = (sum[i] + last[i]) * factor;
        }
      }));
    }
    count_ = 0;
    last_ = Tensor();
    std::vector<Tensor> result;
    result.push_back(std::exchange(sum_, Tensor()));
    return result;
  }

 private:
  static Status WrongShape(const std::string& expected, const Tensor& gradient) {
    return InvalidArgument("Shape mismatch: expected ", expected, ", got ", gradient.shape().ToString());
  }

  // Computes the new sum from the old one and the last gradient, in place if it is not shared.
  template <typename Fn>
  Status Replace(Fn&& fn) {
    // The first gradient's memory may still be shared.
    Tensor next;
    if (owned_) {
      next = sum_;
    } else {
      MR_ASSIGN_OR_RETURN(next, Tensor::Make(dtype_, sum_.shape()));
    }
    DispatchType(FloatTypes{}, dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      fn(next.data<T>(), static_cast<const T*>(sum_.data<T>()), static_cast<const T*>(last_.data<T>()),
         sum_.num_elements());
    });
    sum_ = std::move(next);
    owned_ = true;
    return absl::OkStatus();
  }

  const DType dtype_;
  const PartialShape shape_;
  // The sum of all gradients except the last one of several, which is added when another arrives or, fused with the
  // division, when the sum is taken.
  Tensor sum_;
  Tensor last_;
  bool owned_ = false;
  int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<GradientSum> GradientSum::Dense(DType dtype, const PartialShape& shape) {
  return std::make_unique<DenseGradientSum>(dtype, shape);
}

}  // namespace millrace
