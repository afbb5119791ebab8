// Numeric and bucketized columns.
#include <algorithm>
#include <cmath>

#include "millrace/api/reductions.h"
#include "millrace/estimator/feature_columns/column.h"

namespace millrace {
namespace feature_columns {
namespace {

using api_internal::Cast;

// [batch, the rest of the dimensions in one], for a tensor whose rest has `width` elements.
Output FlattenTo(const Scope& scope, const Output& x, int64_t width) {
  const PartialShape shape = x.shape();
  if (shape.known_rank() && shape.rank() == 2 && shape.dim(1) == width) return x;
  int64_t rest = 1;
  for (int i = 1; i < shape.rank(); ++i) rest = shape.dim(i) < 0 || rest < 0 ? -1 : rest * shape.dim(i);
  const auto columns = static_cast<int32_t>(width);
  if (rest == width) return Op(scope, "Reshape", {x, std::vector<int32_t>{-1, columns}});
  // The number of examples is given, so that another number of elements fails instead of making other examples.
  const Output batch = Op(scope, "Slice", {Op(scope, "Shape", {x}), std::vector<int32_t>{0}, std::vector<int32_t>{1}});
  return Op(scope, "Reshape", {x, Op(scope, "ConcatV2", {InputList{batch, std::vector<int32_t>{columns}}, 0})});
}

// One tensor of `shape`: `value` itself, or a number for all elements.
StatusOr<Tensor> DefaultOf(const Tensor& value, const Shape& shape, DType dtype) {
  MR_ASSIGN_OR_RETURN(const Tensor typed, Literal(value).As(dtype));
  if (typed.shape() == shape) return typed;
  if (typed.num_elements() != 1)
    return InvalidArgument("default_value has shape ", typed.shape().ToString(), ", and the column ", shape.ToString());
  Tensor all(dtype, shape);
  for (int64_t i = 0; i < all.num_elements(); ++i) {
    if (dtype == DType::kFloat) {
      all.data<float>()[i] = typed.data<float>()[0];
    } else {
      all.data<int64_t>()[i] = typed.data<int64_t>()[0];
    }
  }
  return all;
}

class NumericColumn : public Column {
 public:
  NumericColumn(std::string key, feature_column::NumericOptions options)
      : Column(key), key_(std::move(key)), options_(std::move(options)) {
    CheckThat(!key_.empty(), "has no key");
    for (const int64_t dim : options_.shape.dims())
      CheckThat(dim > 0, "has shape ", options_.shape.ToString(), "; dimensions must be positive");
    CheckThat(IsNumber(options_.dtype), "has type ", options_.dtype, ", which is not a number's");
    if (options_.default_value && status().ok()) {
      const StatusOr<Tensor> all = DefaultOf(*options_.default_value, options_.shape, ParsedType());
      if (all.ok()) {
        default_ = *all;
      } else {
        CheckThat(false, all.status().message());
      }
    }
  }

  bool is_dense() const override { return true; }
  int64_t width() const override { return options_.shape.num_elements(); }
  const Shape& shape() const { return options_.shape; }

  Status AddFeatures(ParseSpec* spec) const override {
    return AddFeature(spec, *this, key_, FixedLenFeature(ParsedType(), options_.shape, default_));
  }

  Output Numbers(const Scope& scope, FeatureTensors& features) const override {
    Output x = features.Dense(scope, *this, key_);
    if (x.empty()) return x;
    if (!IsNumber(x.dtype())) {
      scope.UpdateStatus(Wrong("the feature '", key_, "' has type ", x.dtype(), ", and must be a number"));
      return Output(scope, Endpoint{});
    }
    int64_t elements = 1;
    for (int i = 1; i < x.shape().rank(); ++i)
      elements = elements < 0 || x.shape().dim(i) < 0 ? -1 : elements * x.shape().dim(i);
    if (elements >= 0 && elements != width()) {
      scope.UpdateStatus(Wrong("the feature '", key_, "' has shape ", x.shape().ToString(),
                               ", and the column is of shape ", options_.shape.ToString(), " for each example"));
      return Output(scope, Endpoint{});
    }
    if (options_.normalizer != nullptr) x = options_.normalizer(scope, x);
    return Cast(scope, x, DType::kFloat);
  }

  Output Values(const ColumnScope& where, FeatureTensors& features) const override {
    const Output numbers = features.NumbersOf(where.scope, *this);
    return numbers.empty() ? numbers : FlattenTo(where.scope, numbers, width());
  }

 private:
  static bool IsNumber(DType dtype) {
    return dtype == DType::kFloat || dtype == DType::kDouble || dtype == DType::kHalf || dtype == DType::kInt32 ||
           dtype == DType::kInt64 || dtype == DType::kInt16 || dtype == DType::kInt8 || dtype == DType::kUInt8 ||
           dtype == DType::kBool;
  }
  // Examples have floats and int64s.
  DType ParsedType() const {
    const bool real =
        options_.dtype == DType::kFloat || options_.dtype == DType::kDouble || options_.dtype == DType::kHalf;
    return real ? DType::kFloat : DType::kInt64;
  }

  const std::string key_;
  const feature_column::NumericOptions options_;
  std::optional<Tensor> default_;
};

class BucketizedColumn : public Column {
 public:
  BucketizedColumn(const FeatureColumn& source, std::vector<float> boundaries)
      : Column(source.name() + "_bucketized"), source_(source), boundaries_(std::move(boundaries)) {
    CheckPart(source);
    const auto* const numeric = dynamic_cast<const NumericColumn*>(&source.column());
    CheckThat(numeric != nullptr, "the source '", source.name(), "' is not a numeric column");
    if (numeric != nullptr) {
      CheckThat(numeric->shape().rank() <= 1, "the source '", source.name(), "' has shape ",
                numeric->shape().ToString(), ", and must have one dimension");
      elements_ = numeric->width();
    }
    CheckThat(!boundaries_.empty(), "has no boundaries");
    for (size_t i = 0; i < boundaries_.size(); ++i) {
      CheckThat(std::isfinite(boundaries_[i]), "the boundary ", boundaries_[i], " is not a finite number");
      CheckThat(i == 0 || boundaries_[i] > boundaries_[i - 1],
                "the boundaries do not increase: ", boundaries_[i == 0 ? 0 : i - 1], " is followed by ",
                boundaries_[i]);
    }
  }

  bool is_categorical() const override { return true; }
  bool is_dense() const override { return true; }
  Status AddFeatures(ParseSpec* spec) const override { return source_.column().AddFeatures(spec); }
  int64_t num_buckets() const override { return buckets() * elements_; }
  int64_t width() const override { return num_buckets(); }

  // [batch, elements], each in [0, buckets).
  Output Numbers(const Scope& scope, FeatureTensors& features) const override {
    const Output x = features.NumbersOf(scope, source_.column());
    if (x.empty()) return x;
    return Op(scope, "Bucketize", {FlattenTo(scope, x, elements_)}, {{"boundaries", boundaries_}});
  }

  Output Values(const ColumnScope& where, FeatureTensors& features) const override {
    const Scope& s = where.scope;
    const Output bucket = features.NumbersOf(s, *this);
    if (bucket.empty()) return bucket;
    const Output one_hot = Op(
        s, "OneHot",
        {bucket, static_cast<int32_t>(buckets()), Input(1.0f).In(s, DType::kFloat), Input(0.0f).In(s, DType::kFloat)});
    return Op(s, "Reshape", {one_hot, std::vector<int32_t>{-1, static_cast<int32_t>(width())}});
  }

  IdsAndWeights Ids(const Scope& s, FeatureTensors& features) const override {
    const Output bucket = features.NumbersOf(s, *this);
    if (bucket.empty()) return {};
    // Each element of the source has ids of its own.
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i < elements_; ++i) offsets.push_back(i * buckets());
    const Output ids = Op(s, "AddV2", {Cast(s, bucket, DType::kInt64), offsets});
    const Output indices = Op(s, "Where", {Op(s, "GreaterEqual", {ids, Input(int64_t{0}).In(s, DType::kInt64)})});
    return {.ids = {indices, Op(s, "Reshape", {ids, std::vector<int32_t>{-1}}),
                    Op(s, "Shape", {ids}, {{"out_type", DType::kInt64}})}};
  }

 private:
  int64_t buckets() const { return static_cast<int64_t>(boundaries_.size()) + 1; }

  const FeatureColumn source_;
  const std::vector<float> boundaries_;
  int64_t elements_ = 1;
};

}  // namespace
}  // namespace feature_columns

namespace feature_column {

FeatureColumn Numeric(std::string key, NumericOptions options) {
  return FeatureColumn(std::make_shared<feature_columns::NumericColumn>(std::move(key), std::move(options)));
}
FeatureColumn Bucketized(const FeatureColumn& source, std::vector<float> boundaries) {
  return FeatureColumn(std::make_shared<feature_columns::BucketizedColumn>(source, std::move(boundaries)));
}

}  // namespace feature_column
}  // namespace millrace
