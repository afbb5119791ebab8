// A text as numbers: each character that occurs in it has one.
#pragma once

#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "millrace/millrace.h"

// The last twentieth of the text is kept for the test.
struct Corpus {
  std::string characters;  // by number
  std::vector<int32_t> train, test;

  static millrace::StatusOr<Corpus> Load(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file) return millrace::NotFound("cannot read the text ", path);
    if (text.size() < 1000) return millrace::InvalidArgument("the text ", path, " has only ", text.size(), " bytes");
    Corpus corpus;
    std::array<int32_t, 256> numbers;
    numbers.fill(-1);
    std::vector<int32_t> all;
    for (const char c : text) {
      int32_t& number = numbers[static_cast<unsigned char>(c)];
      if (number < 0) {
        number = static_cast<int32_t>(corpus.characters.size());
        corpus.characters += c;
      }
      all.push_back(number);
    }
    const auto split = all.begin() + static_cast<std::ptrdiff_t>(all.size() - all.size() / 20);
    corpus.train.assign(all.begin(), split);
    corpus.test.assign(split, all.end());
    return corpus;
  }

  int64_t size() const { return static_cast<int64_t>(characters.size()); }

  // Windows of `time` characters, and as targets the character after each of them: int32 [count, time] both. They begin
  // at the given places of `text`.
  static std::vector<millrace::Tensor> Windows(const std::vector<int32_t>& text, const std::vector<int64_t>& begins,
                                               int64_t time) {
    const millrace::Shape shape({static_cast<int64_t>(begins.size()), time});
    millrace::Tensor inputs(millrace::DType::kInt32, shape), targets(millrace::DType::kInt32, shape);
    for (size_t i = 0; i < begins.size(); ++i) {
      const int32_t* const from = text.data() + begins[i];
      std::copy_n(from, time, inputs.data<int32_t>() + static_cast<int64_t>(i) * time);
      std::copy_n(from + 1, time, targets.data<int32_t>() + static_cast<int64_t>(i) * time);
    }
    return {inputs, targets};
  }
};
