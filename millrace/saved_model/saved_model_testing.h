// A model for the tests of this folder. For tests only.
#pragma once

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/millrace.h"

namespace millrace {

// y = x w + b, with a training step and a table of words that is read from a file when the model is loaded.
struct LinearNet {
  explicit LinearNet(const std::string& words_file = "") {
    x = ops::Placeholder(root.WithOpName("x"), DType::kFloat, {.shape = PartialShape({-1, 2})});
    w = Var(root, "w", Input({{1.0f, 2.0f}, {3.0f, 4.0f}}));
    b = Var(root, "b", Input({0.5f, 0.25f}));
    y = ops::Add(root.WithOpName("y"), ops::MatMul(root, x, w), b);
    loss = ops::Mean(root.WithOpName("loss"), ops::Square(root, y), {0, 1});
    train = optimizers::Adam({.learning_rate = 0.1})
                .Minimize(root.WithOpName("train"), loss, {.global_step = GlobalStep(root)});
    if (words_file.empty()) return;
    file = ops::Const(root.WithOpName("words_file"), words_file);
    words = ops::Placeholder(root.WithOpName("words"), DType::kString, {.shape = PartialShape({-1})});
    const Output table = Op(root, "HashTableV2", {}, {{"key_dtype", DType::kString}, {"value_dtype", DType::kInt64}});
    tables = AddOp(root.WithOpName("tables"), "InitializeTableFromTextFileV2", {table, file},
                   {{"key_index", -2}, {"value_index", -1}, {"vocab_size", -1}, {"delimiter", "\t"}});
    ids = Op(root.WithOpName("ids"), "LookupTableFindV2", {table, words, int64_t{-1}});
  }

  ClientSession MakeSession() {
    const Operation init = GlobalVariablesInitializer(root);
    StatusOr<ClientSession> session = ClientSession::Create(root);
    EXPECT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE(session->Run(init).ok());
    return *std::move(session);
  }

  Signatures MakeSignatures() const {
    Signatures signatures = {{"serving_default", PredictSignature({{"x", x}}, {{"y", y}, {"same", x}})}};
    if (!ids.empty()) signatures["look_up"] = PredictSignature({{"words", words}}, {{"ids", ids}});
    return signatures;
  }

  Scope root = Scope::NewRoot();
  Output x, y, loss, file, words, ids;
  Var w, b;
  Operation train, tables;
};

// A batch of one.
inline const Tensor kRow = Tensor::Of<float>(Shape({1, 2}), {1, 1});

inline std::vector<float> Floats(const Tensor& tensor) {
  return {tensor.flat<float>().begin(), tensor.flat<float>().end()};
}

}  // namespace millrace
