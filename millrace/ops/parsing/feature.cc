#include "millrace/ops/parsing/feature.h"

#include <algorithm>
#include <cstring>

#include "millrace/ops/parsing/wire.h"

namespace millrace {
namespace {

// The three lists have one field, `value`. Numbers come packed, or one by one from old writers.
constexpr uint32_t kPacked = DelimitedTag(1), kOneFloat = Fixed32Tag(1), kOneInt = VarintTag(1);

bool ReadEntry(absl::string_view entry, absl::string_view* key, absl::string_view* value) {
  *key = *value = {};
  WireReader reader(entry);
  for (uint32_t tag; !reader.done();) {
    if (!reader.Tag(&tag)) return false;
    const bool ok = tag == DelimitedTag(1)   ? reader.Delimited(key)
                    : tag == DelimitedTag(2) ? reader.Delimited(value)
                                             : reader.Skip(tag);
    if (!ok) return false;
  }
  return true;
}

int64_t CountBytes(absl::string_view list) {
  int64_t n = 0;
  WireReader reader(list);
  absl::string_view body;
  for (uint32_t tag; !reader.done(); ++n) {
    if (!reader.Tag(&tag) || tag != DelimitedTag(1) || !reader.Delimited(&body)) return -1;
  }
  return n;
}

int64_t CountFloats(absl::string_view list) {
  int64_t n = 0;
  WireReader reader(list);
  absl::string_view packed;
  const char* bytes;
  for (uint32_t tag; !reader.done();) {
    if (!reader.Tag(&tag)) return -1;
    if (tag == kPacked) {
      if (!reader.Delimited(&packed) || packed.size() % sizeof(float) != 0) return -1;
      n += static_cast<int64_t>(packed.size() / sizeof(float));
    } else {
      if (tag != kOneFloat || !reader.Fixed(sizeof(float), &bytes)) return -1;
      ++n;
    }
  }
  return n;
}

int64_t CountInts(absl::string_view list) {
  int64_t n = 0;
  WireReader reader(list);
  absl::string_view packed;
  uint64_t value;
  for (uint32_t tag; !reader.done();) {
    if (!reader.Tag(&tag)) return -1;
    if (tag == kPacked) {
      if (!reader.Delimited(&packed)) return -1;
      for (WireReader values(packed); !values.done(); ++n) {
        if (!values.Varint(&value)) return -1;
      }
    } else {
      if (tag != kOneInt || !reader.Varint(&value)) return -1;
      ++n;
    }
  }
  return n;
}

}  // namespace

bool ForEachEntry(absl::string_view message, uint32_t field,
                  absl::FunctionRef<bool(absl::string_view key, absl::string_view value)> visit) {
  absl::string_view map, entry, key, value;
  WireReader outer(message);
  for (uint32_t tag; !outer.done();) {
    if (!outer.Tag(&tag)) return false;
    if (tag != DelimitedTag(field)) {
      if (!outer.Skip(tag)) return false;
      continue;
    }
    if (!outer.Delimited(&map)) return false;
    for (WireReader inner(map); !inner.done();) {
      if (!inner.Tag(&tag)) return false;
      if (tag != DelimitedTag(1)) {
        if (!inner.Skip(tag)) return false;
        continue;
      }
      if (!inner.Delimited(&entry) || !ReadEntry(entry, &key, &value) || !visit(key, value)) return false;
    }
  }
  return true;
}

bool ForEachFeature(absl::string_view feature_list, absl::FunctionRef<bool(absl::string_view feature)> visit) {
  absl::string_view feature;
  WireReader reader(feature_list);
  for (uint32_t tag; !reader.done();) {
    if (!reader.Tag(&tag)) return false;
    if (tag == DelimitedTag(1)) {
      if (!reader.Delimited(&feature) || !visit(feature)) return false;
    } else if (!reader.Skip(tag)) {
      return false;
    }
  }
  return true;
}

bool ReadFeature(absl::string_view bytes, FeatureView* feature) {
  static constexpr DType kTypes[] = {DType::kInvalid, DType::kString, DType::kFloat, DType::kInt64};
  *feature = {};
  WireReader reader(bytes);
  for (uint32_t tag; !reader.done();) {
    if (!reader.Tag(&tag)) return false;
    // Values of a kind that is not known here must not pass for none.
    if (tag != DelimitedTag(1) && tag != DelimitedTag(2) && tag != DelimitedTag(3)) return false;
    if (!reader.Delimited(&feature->values)) return false;
    feature->dtype = kTypes[tag >> 3];
  }
  return true;
}

int64_t CountValues(const FeatureView& feature) {
  switch (feature.dtype) {
    case DType::kString: return CountBytes(feature.values);
    case DType::kFloat: return CountFloats(feature.values);
    case DType::kInt64: return CountInts(feature.values);
    default: return 0;
  }
}

void DecodeValues(const FeatureView& feature, float* out) {
  WireReader reader(feature.values);
  absl::string_view packed;
  const char* bytes = nullptr;
  for (uint32_t tag; !reader.done() && reader.Tag(&tag);) {
    if (tag == kPacked) {
      if (!reader.Delimited(&packed)) return;
      std::memcpy(out, packed.data(), packed.size());
      out += packed.size() / sizeof(float);
    } else {
      if (!reader.Fixed(sizeof(float), &bytes)) return;
      std::memcpy(out++, bytes, sizeof(float));
    }
  }
}

void DecodeValues(const FeatureView& feature, int64_t* out) {
  WireReader reader(feature.values);
  absl::string_view packed;
  uint64_t value = 0;
  for (uint32_t tag; !reader.done() && reader.Tag(&tag);) {
    if (tag == kPacked) {
      if (!reader.Delimited(&packed)) return;
      for (WireReader values(packed); !values.done() && values.Varint(&value);) *out++ = static_cast<int64_t>(value);
    } else {
      if (!reader.Varint(&value)) return;
      *out++ = static_cast<int64_t>(value);
    }
  }
}

void DecodeValues(const FeatureView& feature, std::string* out) {
  WireReader reader(feature.values);
  absl::string_view body;
  for (uint32_t tag; !reader.done() && reader.Tag(&tag) && reader.Delimited(&body); ++out) {
    out->assign(body.data(), body.size());
  }
}

}  // namespace millrace
