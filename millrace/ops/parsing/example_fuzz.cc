// Fuzzes the parsers of Examples and SequenceExamples. Whatever protobuf can parse must give the same values here.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/ops/parsing/sequence_columns.h"
#include "millrace/proto/example.pb.h"
#include "millrace/runtime/kernel.h"

namespace millrace {
namespace {

KernelContext Context() {
  static Device* const device = NewCpuDevice({.intra_op_threads = 1}).release();
  static const StepContext step;
  KernelContext ctx;
  KernelContextAccess(ctx).Set(nullptr, device, Allocator::Heap(), &step);
  return ctx;
}

const ExampleColumns& Columns() {
  static const auto* const columns = new ExampleColumns{.sparse = {{"f", DType::kFloat}, {"i", DType::kInt64}},
                                                        .dense = {{.key = "v",
                                                                   .dtype = DType::kFloat,
                                                                   .shape = PartialShape({-1, 2}),
                                                                   .default_value = Tensor::Of<float>({7})},
                                                                  {.key = "d",
                                                                   .dtype = DType::kInt64,
                                                                   .shape = PartialShape({2}),
                                                                   .default_value = Tensor::Of<int64_t>({1, 2})}},
                                                        .ragged = {{"s", DType::kString, DType::kInt32}}};
  return *columns;
}

const ListColumns& Lists() {
  static const auto* const lists =
      new ListColumns{.sparse = {{"f", DType::kFloat}, {"i", DType::kInt64}},
                      .dense = {{.key = "d", .dtype = DType::kInt64, .shape = Shape({1}), .may_be_missing = true}},
                      .ragged = {{"s", DType::kString, DType::kInt64}}};
  return *lists;
}

// Parses the example twice: in a batch of two, and alone.
void ParseAll(const std::string& bytes) {
  KernelContext ctx = Context();
  const std::string batch[] = {bytes, bytes};
  const SerializedExamples two{batch, {}, true}, one{absl::MakeConstSpan(batch, 1), {}, false};
  const bool ok = ParseExamples(ctx, two, Columns()).ok();
  MR_CHECK(ParseExamples(ctx, one, Columns()).ok() == ok);
  const bool lists_ok = ParseFeatureLists(ctx, two, Lists()).ok();
  MR_CHECK(ParseFeatureLists(ctx, one, Lists()).ok() == lists_ok);
}

// The values of `got` are those of `want`.
template <typename Values>
void CheckSame(const Tensor& got, const Values& want) {
  using T = std::remove_const_t<std::remove_reference_t<decltype(*want.begin())>>;
  MR_CHECK(got.num_elements() == want.size());
  for (int i = 0; i < want.size(); ++i) {
    if constexpr (std::is_same_v<T, float>) {
      MR_CHECK(std::memcmp(&got.data<float>()[i], &want.Get(i), sizeof(float)) == 0);
    } else {
      MR_CHECK(got.data<T>()[i] == want.Get(i));
    }
  }
}

void CompareWithProtobuf(const pb::Example& example) {
  KernelContext ctx = Context();
  const std::string bytes = example.SerializeAsString();
  const StatusOr<ParsedColumns> parsed = ParseExamples(ctx, {absl::MakeConstSpan(&bytes, 1), {}, true}, Columns());
  const auto& features = example.features().feature();
  const auto kind = [&](const char* key) {
    const auto at = features.find(key);
    return at == features.end() ? pb::Feature::KIND_NOT_SET : at->second.kind_case();
  };
  const auto fits = [&](const char* key, pb::Feature::KindCase want) {
    return kind(key) == want || kind(key) == pb::Feature::KIND_NOT_SET;
  };
  const auto size = [&](const char* key) {
    const auto at = features.find(key);
    return at == features.end() ? 0 : at->second.float_list().value_size() + at->second.int64_list().value_size();
  };
  const bool good = fits("f", pb::Feature::kFloatList) && fits("i", pb::Feature::kInt64List) &&
                    fits("v", pb::Feature::kFloatList) && fits("d", pb::Feature::kInt64List) &&
                    fits("s", pb::Feature::kBytesList) && size("v") % 2 == 0 &&
                    (kind("d") == pb::Feature::KIND_NOT_SET || size("d") == 2);
  MR_CHECK(parsed.ok() == good);
  if (!good) return;
  if (kind("f") != pb::Feature::KIND_NOT_SET) {
    CheckSame(parsed->sparse_values[0], features.at("f").float_list().value());
  }
  if (kind("i") != pb::Feature::KIND_NOT_SET) {
    CheckSame(parsed->sparse_values[1], features.at("i").int64_list().value());
  }
  if (kind("v") != pb::Feature::KIND_NOT_SET) CheckSame(parsed->dense_values[0], features.at("v").float_list().value());
  if (kind("d") != pb::Feature::KIND_NOT_SET) CheckSame(parsed->dense_values[1], features.at("d").int64_list().value());
  if (kind("s") != pb::Feature::KIND_NOT_SET) {
    CheckSame(parsed->ragged_values[0], features.at("s").bytes_list().value());
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  ParseAll(bytes);
  pb::Example example;
  if (example.ParseFromString(bytes)) {
    example.DiscardUnknownFields();  // a Feature of an unknown kind is rejected by the parsers but ignored by protobuf
    CompareWithProtobuf(example);
  }
  return 0;
}
