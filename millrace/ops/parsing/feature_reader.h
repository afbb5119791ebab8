// Walks the bytes of Features without calls: the loops of feature.h, and of the parser of batches, which visits each
// entry of each example.
#pragma once

#include <cstring>

#include "millrace/base/wire_reader.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// The fields of a message in one piece.
class FeatureFields : public WireReader<FlatSource> {
 public:
  explicit FeatureFields(absl::string_view message) : WireReader(&source_), source_(message) {}
  // Of a field with a BytesTag.
  absl::string_view Body() { return source_.Take(size()); }
  // Takes the next field in place of Next and Body if it is short; see FlatSource.
  bool TakeShortField(uint32_t tag, absl::string_view* body) { return ok() && source_.TakeShortField(tag, body); }

 private:
  FlatSource source_;
};

// Most messages here consist of one short field, which needs no reader. Sets `body` to what it contains; false if the
// message is anything else, which a reader then looks at.
inline bool IsOneField(absl::string_view message, uint32_t tag, absl::string_view* body) {
  if (message.size() < 2 || message.size() > 129 || static_cast<unsigned char>(message[0]) != tag ||
      static_cast<unsigned char>(message[1]) != message.size() - 2)
    return false;
  *body = message.substr(2);
  return true;
}

// Reads an entry of a map from keys to messages by its fields.
inline bool ReadEntryFields(absl::string_view entry, absl::string_view* key, absl::string_view* value) {
  *key = *value = {};
  FeatureFields fields(entry);
  while (fields.Next()) {
    switch (fields.tag()) {
      case BytesTag(1):
        *key = fields.Body();
        break;
      case BytesTag(2):
        *value = fields.Body();
        break;
      default:
        fields.Skip();
    }
  }
  return fields.ok();
}

inline bool ReadEntry(absl::string_view entry, absl::string_view* key, absl::string_view* value) {
  // A short key followed by a short value, as writers write them.
  FlatSource source(entry);
  if (source.TakeShortField(BytesTag(1), key) &&
      IsOneField(absl::string_view(entry).substr(entry.size() - source.remaining()), BytesTag(2), value))
    return true;
  return ReadEntryFields(entry, key, value);
}

// ForEachEntry of feature.h with a visitor that is compiled into the loop.
template <typename Visit>
bool VisitEntries(absl::string_view message, uint32_t field, Visit&& visit) {
  FeatureFields outer(message);
  while (outer.Next()) {
    if (outer.tag() != BytesTag(field)) {
      outer.Skip();
      continue;
    }
    FeatureFields inner(outer.Body());
    absl::string_view entry, key, value;
    for (;;) {
      if (!inner.TakeShortField(BytesTag(1), &entry)) {
        if (!inner.Next()) break;
        if (inner.tag() != BytesTag(1)) {
          inner.Skip();
          continue;
        }
        entry = inner.Body();
      }
      if (!ReadEntry(entry, &key, &value) || !visit(key, value)) return false;
    }
    if (!inner.ok()) return false;
  }
  return outer.ok();
}

// Compares two names, which are mostly too short for a call of memcmp.
inline bool SameName(absl::string_view a, absl::string_view b) {
  const size_t n = a.size();
  if (n != b.size()) return false;
  const auto same = [&](auto word, size_t at) {
    auto other = word;
    std::memcpy(&word, a.data() + at, sizeof(word));
    std::memcpy(&other, b.data() + at, sizeof(other));
    return word == other;
  };
  if (n > 16) return std::memcmp(a.data(), b.data(), n) == 0;
  if (n >= 8) return same(uint64_t{0}, 0) && same(uint64_t{0}, n - 8);
  if (n >= 4) return same(uint32_t{0}, 0) && same(uint32_t{0}, n - 4);
  return n == 0 || (a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1]);
}

// The values of a Feature whose list is one short field: one string, or packed numbers.
struct ShortValues {
  DType dtype;
  absl::string_view bytes;  // of the string, or of the packed numbers
};
// Returns false if the Feature is anything else, or nothing valid.
inline bool ReadShortFeature(absl::string_view feature, ShortValues* values) {
  const size_t n = feature.size();
  if (n < 4 || n > 129) return false;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(feature[i]); };
  if (byte(1) != n - 2 || byte(2) != BytesTag(1) || byte(3) != n - 4) return false;
  switch (byte(0)) {
    case BytesTag(1):
      values->dtype = DType::kString;
      break;
    case BytesTag(2):
      values->dtype = DType::kFloat;
      break;
    case BytesTag(3):
      values->dtype = DType::kInt64;
      break;
    default:
      return false;
  }
  values->bytes = feature.substr(4);
  return true;
}

// The number of packed integers; -1 if they are malformed.
inline int64_t CountVarints(absl::string_view packed) {
  int64_t n = 0;
  uint64_t value;
  for (FlatSource values(packed); values.remaining() > 0; ++n) {
    if (!values.ReadVarint(&value)) return -1;
  }
  return n;
}
// Decodes them; returns the end of the output.
inline int64_t* DecodeVarints(absl::string_view packed, int64_t* out) {
  uint64_t value;
  for (FlatSource values(packed); values.remaining() > 0 && values.ReadVarint(&value);) {
    *out++ = static_cast<int64_t>(value);
  }
  return out;
}

}  // namespace millrace
