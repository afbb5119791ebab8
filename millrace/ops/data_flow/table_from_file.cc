// Initializes a table from a text file.
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "millrace/base/file.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/table_access.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Where a key or a value comes from: a column index of the line, or one of these.
constexpr int64_t kWholeLine = -2;
constexpr int64_t kLineNumber = -1;

// Reads a file line by line, without line terminators.
class LineReader {
 public:
  explicit LineReader(SequentialFile* file) : file_(file) {}

  // Returns false at the end of the file.
  StatusOr<bool> Next(std::string* line) {
    line->clear();
    bool any = false;
    while (true) {
      if (at_ == end_) {
        MR_ASSIGN_OR_RETURN(end_, file_->Read(sizeof(block_), block_));
        at_ = 0;
        if (end_ == 0) return any;
      }
      any = true;
      const char c = block_[at_++];
      if (c == '\n') return true;
      if (c != '\r') line->push_back(c);
    }
  }

 private:
  SequentialFile* const file_;
  char block_[1 << 14];
  size_t at_ = 0;
  size_t end_ = 0;
};

class TableFromFileKernel : public FileKernel {
 public:
  explicit TableFromFileKernel(KernelInit& init) {
    init.Attr("key_index", &key_index_);
    init.Attr("value_index", &value_index_);
    init.Attr("vocab_size", &vocab_size_);
    init.Attr("offset", &offset_);
    std::string delimiter;
    init.Attr("delimiter", &delimiter);
    if (delimiter.size() != 1) {
      init.Fail(InvalidArgument("delimiter should be only 1 char"));
      return;
    }
    delimiter_ = delimiter[0];
  }

  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(RefPtr<LookupTable> table, TableInput(ctx, DType::kInvalid, DType::kInvalid));
    const Tensor& filename = ctx.input(1);
    if (filename.num_elements() != 1) {
      return InvalidArgument("filename should be a single string, but got ", filename.shape().ToString());
    }
    const LookupTable::Options& options = table->options();
    MR_RETURN_IF_ERROR(CheckColumn("Key", key_index_, options.key_dtype));
    MR_RETURN_IF_ERROR(CheckColumn("Value", value_index_, options.value_dtype));
    if (ctx.step().files == nullptr) return Internal("the step has no files");
    std::vector<std::string> keys, values;
    MR_RETURN_IF_ERROR(ReadLines(*ctx.step().files, filename.scalar<std::string>(), &keys, &values));
    MR_ASSIGN_OR_RETURN(const Tensor key_tensor, Parse(options.key_dtype, keys));
    MR_ASSIGN_OR_RETURN(const Tensor value_tensor, Parse(options.value_dtype, values));
    return ChangeTable(ctx, [&] { return table->Initialize(key_tensor, value_tensor); });
  }

 private:
  static Status CheckColumn(const char* what, int64_t index, DType dtype) {
    if (index == kLineNumber && dtype != DType::kInt64) {
      return InvalidArgument(what, " index for line number requires table ", what[0] == 'K' ? "key" : "value",
                             " dtype of int64, got ", dtype);
    }
    if (index == kWholeLine && dtype != DType::kString && dtype != DType::kInt64) {
      return InvalidArgument(what, " index for whole line requires string or integer table ",
                             what[0] == 'K' ? "key" : "value", ", got ", dtype);
    }
    return absl::OkStatus();
  }

  Status ReadLines(FileSystem& files, const std::string& path, std::vector<std::string>* keys,
                   std::vector<std::string>* values) const {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, files.OpenSequential(path));
    LineReader reader(file.get());
    std::string line;
    int64_t number = 0;
    while (vocab_size_ < 0 || number < vocab_size_) {
      MR_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
      if (!more) break;
      if (line.empty()) return InvalidArgument("Invalid content in ", path, ": empty line found at line ", number, ".");
      const std::vector<absl::string_view> columns = absl::StrSplit(line, delimiter_);
      const int64_t needed = std::max(key_index_, value_index_) + 1;
      if (static_cast<int64_t>(columns.size()) < needed) {
        return InvalidArgument("Invalid number of columns in ", path, " line ", number, " (", line,
                               ") : expected at least ", needed, " got ", columns.size());
      }
      keys->push_back(Column(key_index_, line, columns, number));
      values->push_back(Column(value_index_, line, columns, number));
      ++number;
    }
    if (number == 0) return OutOfRange("Finished reading 0 of lines from ", path);
    if (vocab_size_ > number) {
      return InvalidArgument("Invalid vocab_size in ", path, ": expected ", vocab_size_, " but got ", number);
    }
    return absl::OkStatus();
  }

  std::string Column(int64_t index, const std::string& line, const std::vector<absl::string_view>& columns,
                     int64_t number) const {
    if (index == kWholeLine) return line;
    if (index == kLineNumber) return absl::StrCat(number + offset_);
    return std::string(columns[static_cast<size_t>(index)]);
  }

  template <typename T, typename Fn>
  static StatusOr<Tensor> ParseAll(const std::vector<std::string>& fields, Fn&& parse) {
    Tensor result(DTypeOf<T>(), Shape({static_cast<int64_t>(fields.size())}));
    for (size_t i = 0; i < fields.size(); ++i) {
      T value{};
      if (!parse(fields[i], &value)) {
        return InvalidArgument("Field ", fields[i], " in line ", i, " is not a valid ", DTypeOf<T>(), ".");
      }
      result.data<T>()[i] = std::move(value);
    }
    return result;
  }

  static StatusOr<Tensor> Parse(DType dtype, const std::vector<std::string>& fields) {
    switch (dtype) {
      case DType::kInt32:
        return ParseAll<int32_t>(fields, [](const std::string& s, int32_t* v) { return absl::SimpleAtoi(s, v); });
      case DType::kInt64:
        return ParseAll<int64_t>(fields, [](const std::string& s, int64_t* v) { return absl::SimpleAtoi(s, v); });
      case DType::kFloat:
        return ParseAll<float>(fields, [](const std::string& s, float* v) { return absl::SimpleAtof(s, v); });
      case DType::kDouble:
        return ParseAll<double>(fields, [](const std::string& s, double* v) { return absl::SimpleAtod(s, v); });
      case DType::kString:
        return Tensor::FromVector(fields);
      default:
        return InvalidArgument("Data type ", dtype, " not supported.");
    }
  }

  int64_t key_index_ = 0;
  int64_t value_index_ = 0;
  int64_t vocab_size_ = -1;
  int64_t offset_ = 0;
  char delimiter_ = '\t';
};

#define MR_TABLE_FROM_FILE(name, handle)  \
  MILLRACE_OP(name)                       \
      .Input("table_handle: " handle)     \
      .Input("filename: string")          \
      .Attr("key_index: int >= -2")       \
      .Attr("value_index: int >= -2")     \
      .Attr("vocab_size: int >= -1 = -1") \
      .Attr("delimiter: string = '\t'")   \
      .Attr("offset: int = 0")            \
      .Shape(NoOutputs)                   \
      .NotDifferentiable()                \
      .Summary("Initializes a table from a text file.")
MR_TABLE_FROM_FILE(InitializeTableFromTextFile, "Ref(string)");
MR_TABLE_FROM_FILE(InitializeTableFromTextFileV2, "resource").Stateful();

MILLRACE_KERNEL(InitializeTableFromTextFile, kCpu, TableFromFileKernel);
MILLRACE_KERNEL(InitializeTableFromTextFileV2, kCpu, TableFromFileKernel);

}  // namespace
}  // namespace millrace
