#include "millrace/ops/parsing/feature.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "millrace/ops/parsing/feature_reader.h"

namespace millrace {
namespace {

// The three lists have one field, `value`. Numbers come packed, or one by one from old writers.
constexpr uint32_t kPacked = BytesTag(1), kOneFloat = Fixed32Tag(1), kOneInt = VarintTag(1);

using Fields = FeatureFields;

int64_t CountBytes(absl::string_view list) {
  absl::string_view only;
  if (IsOneField(list, BytesTag(1), &only)) return 1;
  int64_t n = 0;
  Fields fields(list);
  for (; fields.Next(); ++n) {
    if (fields.tag() != BytesTag(1)) return -1;
    fields.Skip();
  }
  return fields.ok() ? n : -1;
}

int64_t CountFloats(absl::string_view list) {
  absl::string_view only;
  if (IsOneField(list, kPacked, &only) && only.size() % sizeof(float) == 0)
    return static_cast<int64_t>(only.size() / sizeof(float));
  int64_t n = 0;
  Fields fields(list);
  while (fields.Next()) {
    if (fields.tag() == kPacked) {
      if (fields.size() % sizeof(float) != 0) return -1;
      n += static_cast<int64_t>(fields.size() / sizeof(float));
      fields.Skip();
    } else {
      if (fields.tag() != kOneFloat) return -1;
      ++n;
    }
  }
  return fields.ok() ? n : -1;
}

int64_t CountInts(absl::string_view list) {
  int64_t n = 0;
  Fields fields(list);
  while (fields.Next()) {
    if (fields.tag() == kPacked) {
      const int64_t packed = CountVarints(fields.Body());
      if (packed < 0) return -1;
      n += packed;
    } else {
      if (fields.tag() != kOneInt) return -1;
      ++n;
    }
  }
  return fields.ok() ? n : -1;
}

}  // namespace

bool ForEachEntry(absl::string_view message, uint32_t field,
                  absl::FunctionRef<bool(absl::string_view key, absl::string_view value)> visit) {
  return VisitEntries(message, field, visit);
}

bool ForEachFeature(absl::string_view feature_list, absl::FunctionRef<bool(absl::string_view feature)> visit) {
  Fields fields(feature_list);
  while (fields.Next()) {
    if (fields.tag() != BytesTag(1)) {
      fields.Skip();
    } else if (!visit(fields.Body())) {
      return false;
    }
  }
  return fields.ok();
}

bool ReadFeature(absl::string_view bytes, FeatureView* feature) {
  static constexpr DType kTypes[] = {DType::kInvalid, DType::kString, DType::kFloat, DType::kInt64};
  *feature = {};
  for (uint32_t field = 1; field <= 3; ++field) {
    if (!IsOneField(bytes, BytesTag(field), &feature->values)) continue;
    feature->dtype = kTypes[field];
    return true;
  }
  Fields fields(bytes);
  while (fields.Next()) {
    // Values of a kind that is not known here must not pass for none.
    if (fields.tag() != BytesTag(1) && fields.tag() != BytesTag(2) && fields.tag() != BytesTag(3)) return false;
    feature->values = fields.Body();
    feature->dtype = kTypes[fields.field()];
  }
  return fields.ok();
}

int64_t CountValues(const FeatureView& feature) {
  switch (feature.dtype) {
    case DType::kString:
      return CountBytes(feature.values);
    case DType::kFloat:
      return CountFloats(feature.values);
    case DType::kInt64:
      return CountInts(feature.values);
    default:
      return 0;
  }
}

void DecodeValues(const FeatureView& feature, float* out) {
  absl::string_view only;
  if (IsOneField(feature.values, kPacked, &only)) {
    std::memcpy(out, only.data(), only.size());
    return;
  }
  Fields fields(feature.values);
  while (fields.Next()) {
    if (fields.tag() == kPacked) {
      const absl::string_view packed = fields.Body();
      std::memcpy(out, packed.data(), packed.size());
      out += packed.size() / sizeof(float);
    } else {
      *out++ = std::bit_cast<float>(static_cast<uint32_t>(fields.number()));
    }
  }
}

void DecodeValues(const FeatureView& feature, int64_t* out) {
  Fields fields(feature.values);
  while (fields.Next()) {
    if (fields.tag() == kPacked) {
      out = DecodeVarints(fields.Body(), out);
    } else {
      *out++ = static_cast<int64_t>(fields.number());
    }
  }
}

void DecodeValues(const FeatureView& feature, std::string* out) {
  absl::string_view only;
  if (IsOneField(feature.values, BytesTag(1), &only)) {
    out->assign(only.data(), only.size());
    return;
  }
  for (Fields fields(feature.values); fields.Next(); ++out) {
    const absl::string_view body = fields.Body();
    out->assign(body.data(), body.size());
  }
}

}  // namespace millrace
