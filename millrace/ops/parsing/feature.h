// Features of Examples and SequenceExamples, read from their bytes without building messages.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// Where the values of one Feature lie. Refers to the serialized bytes.
struct FeatureView {
  DType dtype = DType::kInvalid;  // string, float or int64; kInvalid when the Feature says nothing
  absl::string_view values;       // the BytesList, FloatList or Int64List
};

// Fields of Example and SequenceExample that hold maps.
inline constexpr uint32_t kExampleFeatures = 1;  // and SequenceExample's context
inline constexpr uint32_t kSequenceFeatureLists = 2;

// Calls visit(key, value) for every entry of the map in field `field` of the message, in their order; a key
// may come again, and then the later value counts. Ends early when `visit` returns false. Returns false when it
// did, or when the bytes are malformed.
bool ForEachEntry(absl::string_view message, uint32_t field,
                  absl::FunctionRef<bool(absl::string_view key, absl::string_view value)> visit);

// Calls visit for every Feature of a FeatureList.
bool ForEachFeature(absl::string_view feature_list, absl::FunctionRef<bool(absl::string_view feature)> visit);

// False when the bytes are no Feature. The values are not looked at.
bool ReadFeature(absl::string_view bytes, FeatureView* feature);

// How many values there are; -1 when they are malformed.
int64_t CountValues(const FeatureView& feature);

// Writes the values, as many as CountValues found. T is the type of the feature.
void DecodeValues(const FeatureView& feature, float* out);
void DecodeValues(const FeatureView& feature, int64_t* out);
void DecodeValues(const FeatureView& feature, std::string* out);

}  // namespace millrace
