// Reading of Features from serialized Examples and SequenceExamples without building messages.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// The location of one Feature's values. Refers to the serialized bytes.
struct FeatureView {
  DType dtype = DType::kInvalid;  // string, float or int64; kInvalid if the Feature is empty
  absl::string_view values;       // the BytesList, FloatList or Int64List
};

// Fields of Example and SequenceExample that hold maps.
inline constexpr uint32_t kExampleFeatures = 1;  // and SequenceExample's context
inline constexpr uint32_t kSequenceFeatureLists = 2;

// Calls visit(key, value) for every entry of the map in field `field` of the message, in order; for a repeated key the
// last value counts. Stops if `visit` returns false. Returns false if it did or if the bytes are malformed.
bool ForEachEntry(absl::string_view message, uint32_t field,
                  absl::FunctionRef<bool(absl::string_view key, absl::string_view value)> visit);

// Calls visit for every Feature of a FeatureList.
bool ForEachFeature(absl::string_view feature_list, absl::FunctionRef<bool(absl::string_view feature)> visit);

// Returns false if the bytes are not a Feature. The values are not validated.
bool ReadFeature(absl::string_view bytes, FeatureView* feature);

// The number of values; -1 if they are malformed.
int64_t CountValues(const FeatureView& feature);

// Decodes the values, as many as CountValues returned. The type of `out` must be that of the feature.
void DecodeValues(const FeatureView& feature, float* out);
void DecodeValues(const FeatureView& feature, int64_t* out);
void DecodeValues(const FeatureView& feature, std::string* out);

}  // namespace millrace
