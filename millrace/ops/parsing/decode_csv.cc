// DecodeCSV: parses comma-separated records to columns.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/number_text.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using FieldTypes = Types<float, double, int32_t, int64_t, std::string>;

struct CsvFormat {
  char delimiter = ',';
  bool quotes = true;
  std::vector<int64_t> columns;  // selected columns in order; all if empty
};

// Splits one record into fields. RFC 4180, except that line breaks are allowed only in quoted fields and are skipped at
// the beginning of a field.
class CsvReader {
 public:
  CsvReader(const CsvFormat& format, absl::string_view text) : format_(format), text_(text) {}

  Status Read(std::vector<std::string>* fields) {
    int64_t column = 0;
    size_t wanted = 0;
    const auto is_wanted = [&] { return format_.columns.empty() || format_.columns[wanted] == column; };
    while (at_ < text_.size()) {
      if (text_[at_] == '\n' || text_[at_] == '\r') {
        ++at_;
        continue;
      }
      field_.clear();
      if (format_.quotes && text_[at_] == '"') {
        MR_RETURN_IF_ERROR(Quoted());
      } else {
        MR_RETURN_IF_ERROR(Plain());
      }
      const bool keep = is_wanted();
      ++column;
      if (!keep) continue;
      fields->push_back(std::move(field_));
      if (++wanted == format_.columns.size()) return absl::OkStatus();
    }
    if (!text_.empty() && text_.back() == format_.delimiter && is_wanted()) fields->emplace_back();
    return absl::OkStatus();
  }

 private:
  Status Plain() {
    for (; at_ < text_.size() && text_[at_] != format_.delimiter; ++at_) {
      const char c = text_[at_];
      if ((format_.quotes && c == '"') || c == '\n' || c == '\r') {
        return InvalidArgument("Unquoted fields cannot have quotes/CRLFs inside");
      }
      field_.push_back(c);
    }
    ++at_;
    return absl::OkStatus();
  }

  Status Quoted() {
    ++at_;
    while (at_ + 1 < text_.size() && (text_[at_] != '"' || text_[at_ + 1] != format_.delimiter)) {
      if (text_[at_] != '"') {
        field_.push_back(text_[at_++]);
        continue;
      }
      if (text_[at_ + 1] != '"') return InvalidArgument("Quote inside a string has to be escaped by another quote");
      field_.push_back('"');
      at_ += 2;
    }
    if (at_ >= text_.size() || text_[at_] != '"') {
      return InvalidArgument("Quoted field has to end with quote followed by delim or end");
    }
    at_ += 2;
    return absl::OkStatus();
  }

  const CsvFormat& format_;
  const absl::string_view text_;
  size_t at_ = 0;
  std::string field_;
};

class DecodeCsvKernel : public Kernel {
 public:
  explicit DecodeCsvKernel(KernelInit& init) {
    std::string delimiter;
    init.Attr("field_delim", &delimiter);
    init.Attr("use_quote_delim", &format_.quotes);
    init.Attr("na_value", &na_value_);
    init.Attr("select_cols", &format_.columns);
    if (delimiter.size() == 1) {
      format_.delimiter = delimiter[0];
    } else {
      init.Fail(InvalidArgument("field_delim should be only 1 char, but is \"", delimiter, "\""));
    }
    const std::vector<int64_t>& columns = format_.columns;
    if (!columns.empty() && static_cast<int>(columns.size()) != init.node().num_outputs()) {
      init.Fail(InvalidArgument("select_cols should match output size: ", columns.size(), " for ",
                                init.node().num_outputs(), " outputs"));
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i] < 0) {
        init.Fail(InvalidArgument("select_cols should be non-negative indices, but has ", columns[i]));
      }
      if (i > 0 && columns[i] <= columns[i - 1]) {
        init.Fail(InvalidArgument("select_cols should be strictly increasing indices"));
      }
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& records = ctx.input(0);
    const int n = ctx.num_outputs();
    for (int f = 0; f < n; ++f) {
      const Tensor& value = ctx.input(f + 1);
      if (value.rank() > 1) {
        return InvalidArgument("Each record default should be at most rank 1, but that of field ", f, " is not");
      }
      if (value.num_elements() > 1) {
        return InvalidArgument("There should only be 1 default per field but field ", f, " has ", value.num_elements());
      }
      MR_RETURN_IF_ERROR(ctx.AllocateOutput(f, records.shape()).status());
    }
    std::vector<std::string> fields;
    for (int64_t i = 0; i < records.num_elements(); ++i) {
      fields.clear();
      const Status status = CsvReader(format_, records.data<std::string>()[i]).Read(&fields);
      if (!status.ok()) return WithSuffix(status, absl::StrCat(" (record ", i, ")"));
      if (static_cast<int>(fields.size()) != n) {
        return InvalidArgument("Expect ", n, " fields but have ", fields.size(), " in record ", i);
      }
      for (int f = 0; f < n; ++f) MR_RETURN_IF_ERROR(Store(ctx, f, i, std::move(fields[f])));
    }
    return absl::OkStatus();
  }

 private:
  Status Store(KernelContext& ctx, int f, int64_t i, std::string field) const {
    const Tensor& value = ctx.input(f + 1);
    Tensor* out = ctx.mutable_output(f);
    Status status;
    DispatchType(FieldTypes(), out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T& to = out->data<T>()[i];
      if (field.empty() || field == na_value_) {
        if (value.num_elements() == 1) {
          to = value.scalar<T>();
        } else {
          status = InvalidArgument("Field ", f, " is required but missing in record ", i, "!");
        }
      } else if constexpr (std::is_same_v<T, std::string>) {
        to = std::move(field);
      } else if (!ParseNumber(field, &to)) {
        status = InvalidArgument("Field ", f, " in record ", i, " is not a valid ", out->dtype(), ": ", field);
      }
    });
    return status;
  }

  CsvFormat format_;
  std::string na_value_;
};

Status DecodeCsvShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) {
    const PartialShape& value = c.input(i);
    if (!value.known_rank()) continue;
    if (value.rank() > 1) {
      return InvalidArgument("Shape of a default must be a length-0 or length-1 vector, or a scalar.");
    }
    if (value.rank() == 1 && value.dim(0) > 1) {
      return InvalidArgument("Shape of a default must be a length-0 or length-1 vector, or a scalar.");
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return absl::OkStatus();
}

MILLRACE_OP(DecodeCSV)
    .Input("records: string")
    .Input("record_defaults: OUT_TYPE")
    .Output("output: OUT_TYPE")
    .Attr("OUT_TYPE: list({float, double, int32, int64, string}) >= 1")
    .Attr("field_delim: string = ','")
    .Attr("use_quote_delim: bool = true")
    .Attr("na_value: string = ''")
    .Attr("select_cols: list(int) = []")
    .Shape(DecodeCsvShape)
    .NotDifferentiable()
    .Summary("Parses CSV records to one tensor per column.");
MILLRACE_KERNEL(DecodeCSV, kCpu, DecodeCsvKernel);

}  // namespace
}  // namespace millrace
