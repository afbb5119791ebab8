// Inputs of ops: outputs of other ops, and literal constants.
#pragma once

#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "millrace/api/output.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// A literal constant: a number, a string, nested braces, a vector or a Tensor.
//
// Numbers and braces adapt to the type that the op needs, so that `x * 2` works for any type of x; the default is float
// or int32. Vectors and Tensors keep their type.
class Literal {
 public:
  template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Literal(T value)  // NOLINT
      : Literal(static_cast<int64_t>(value), sizeof(T) > 4 ? DType::kInt64 : DType::kInt32) {}
  template <typename T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  Literal(T value) : value_(Tensor::Scalar(static_cast<double>(value))), usual_(DType::kFloat) {}  // NOLINT
  // Only for bool itself: a pointer must not convert to bool.
  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, int> = 0>
  Literal(T value) : value_(Tensor::Scalar(value)) {}                     // NOLINT
  Literal(const char* text) : value_(Tensor::Scalar(text)) {}             // NOLINT
  Literal(std::string text) : value_(Tensor::Scalar(std::move(text))) {}  // NOLINT
  Literal(Tensor tensor) : value_(std::move(tensor)) {}                   // NOLINT
  template <typename T>
  Literal(const std::vector<T>& values) : value_(Tensor::FromVector(values)) {}  // NOLINT
  Literal(std::initializer_list<Literal> rows);                                  // NOLINT

  // True if the type can still adapt.
  bool adapts() const { return usual_ != DType::kInvalid; }
  // The default type.
  DType usual_type() const { return adapts() ? usual_ : value_.dtype(); }
  const Shape& shape() const { return value_.shape(); }
  // INVALID_ARGUMENT if the braces are ragged or mixed, or if a number cannot be represented in `dtype`.
  StatusOr<Tensor> As(DType dtype) const;
  StatusOr<Tensor> AsUsual() const { return As(usual_type()); }

 private:
  Literal(int64_t value, DType usual) : value_(Tensor::Scalar(value)), usual_(usual) {}

  // Adaptable numbers are kept as int64 or double.
  Tensor value_;
  DType usual_ = DType::kInvalid;
  Status status_;
};

// An argument of an op.
class Input {
 public:
  Input() : literal_(Tensor()) {}                                                         // empty: an error when used
  Input(const Output& output) : output_(output), is_output_(true), literal_(Tensor()) {}  // NOLINT
  template <typename T, std::enable_if_t<std::is_convertible_v<const T&, Literal>, int> = 0>
  Input(const T& constant) : literal_(constant) {}  // NOLINT
  Input(std::initializer_list<Literal> rows) : literal_(rows) {}

  bool is_output() const { return is_output_; }
  bool is_nothing() const { return is_output_ ? output_.empty() : literal_.usual_type() == DType::kInvalid; }
  const Output& output() const { return output_; }
  const Literal& literal() const { return literal_; }

  // The type; kInvalid for a literal that adapts.
  DType dtype() const;
  // The tensor: the output itself, or a new Const in `scope`, of type `dtype` if the literal adapts.
  Output In(const Scope& scope, DType dtype = DType::kInvalid, absl::string_view name = "Const") const;

 private:
  Output output_;
  bool is_output_ = false;
  Literal literal_;
};

// A list argument: {a, b}, or the outputs of an op.
class InputList {
 public:
  InputList() = default;
  InputList(std::initializer_list<Input> inputs) : inputs_(inputs) {}
  InputList(const std::vector<Output>& outputs) : inputs_(outputs.begin(), outputs.end()) {}  // NOLINT
  InputList(std::vector<Input> inputs) : inputs_(std::move(inputs)) {}                        // NOLINT

  const std::vector<Input>& inputs() const { return inputs_; }

 private:
  std::vector<Input> inputs_;
};

}  // namespace millrace
