#include "millrace/runtime/file_kernel.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// What the kernels of a test wait for, and what they do then.
struct FileTestDisk {
  Notification begun, answers;
  Mutex mu;
  int running ABSL_GUARDED_BY(mu) = 0;
  int most ABSL_GUARDED_BY(mu) = 0;
  bool throws = false;

  Status Wait() {
    {
      MutexLock lock(&mu);
      most = std::max(most, ++running);
    }
    if (!begun.HasBeenNotified()) begun.Notify();
    answers.Wait();
    MutexLock lock(&mu);
    --running;
    if (throws) throw std::bad_alloc();
    return absl::OkStatus();
  }
};
std::shared_ptr<FileTestDisk> file_test_disk;

MILLRACE_OP(FileTestRead).Input("path: string").Output("y: string").Attr("long: bool = false").NotDifferentiable();

class FileTestReadKernel : public FileKernel {
 public:
  explicit FileTestReadKernel(KernelInit& init) : disk_(file_test_disk) { init.Attr("long", &long_); }
  Status ComputeFiles(KernelContext& ctx) const override {
    const std::shared_ptr<FileTestDisk> disk = disk_;
    MR_RETURN_IF_ERROR(disk->Wait());
    ctx.SetOutput(0, Tensor::Scalar(absl::StrCat("content of ", ctx.input(0).scalar<std::string>())));
    return absl::OkStatus();
  }
  bool is_long() const override { return long_; }

 private:
  const std::shared_ptr<FileTestDisk> disk_;
  bool long_ = false;
};
MILLRACE_KERNEL(FileTestRead, kCpu, FileTestReadKernel);

// One node, run as an executor does it.
struct FileTestNode {
  explicit FileTestNode(FileThreadsOptions options, bool is_long = false)
      : pool("inter_op", 1), threads(std::make_shared<FileThreads>(std::move(options))) {
    GraphBuilder b(&graph);
    node = b.Op("FileTestRead", {b.Const(Tensor::Scalar(std::string("/a")))}, {{"long", is_long}}, "read").node;
    kernel = std::shared_ptr<Kernel>(KernelRegistry::Global().Create(*node, device.get()).value());
    owner = kernel;
    step.inter_op = &pool;
    step.cancellation = &cancellation;
    step.file_threads = threads.get();
    step.owner = &owner;
  }
  void Start() {
    KernelContextAccess access(ctx);
    access.Set(node, device.get(), Allocator::Heap(), &step);
    access.SetInputs(&inputs, 1, 0);
    access.SetOutputs(&output, 1);
    kernel->ComputeAsync(ctx, [this](Status s) {
      status = std::move(s);
      done.Notify();
    });
  }

  Graph graph;
  const std::unique_ptr<Device> device = NewCpuDevice({});
  ThreadPool pool;
  const std::shared_ptr<FileThreads> threads;
  const Node* node = nullptr;
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<const void> owner;
  CancellationManager cancellation;
  StepContext step;
  const Tensor path = Tensor::Scalar(std::string("/a"));
  const Tensor* inputs = &path;
  Tensor output;
  KernelContext ctx;
  Status status;
  Notification done;
};

class FileKernelTest : public ::testing::Test {
 protected:
  FileKernelTest() { file_test_disk = disk_ = std::make_shared<FileTestDisk>(); }
  ~FileKernelTest() override {
    if (!disk_->answers.HasBeenNotified()) disk_->answers.Notify();
  }
  std::shared_ptr<FileTestDisk> disk_;
  const std::shared_ptr<WaitRegistry> waits_ = std::make_shared<WaitRegistry>();
};

TEST_F(FileKernelTest, RunsOnItsOwnThreadAndIsListedMeanwhile) {
  FileTestNode read({.waits = waits_});
  read.Start();
  disk_->begun.Wait();
  ASSERT_EQ(waits_->List().size(), 1u);
  EXPECT_EQ(waits_->List()[0].node, "read");
  EXPECT_EQ(waits_->List()[0].what, "FileTestRead of '/a'");
  EXPECT_FALSE(read.done.HasBeenNotified());
  disk_->answers.Notify();
  read.done.Wait();
  EXPECT_EQ(read.status, absl::OkStatus());
  EXPECT_EQ(read.output.scalar<std::string>(), "content of /a");
}

TEST_F(FileKernelTest, ACancelledStepEndsWithoutTheOperation) {
  {
    FileTestNode read({.waits = waits_});
    read.Start();
    disk_->begun.Wait();
    read.cancellation.StartCancel(Cancelled("enough"));
    read.done.Wait();
    EXPECT_EQ(read.status, Cancelled("enough"));
    EXPECT_EQ(waits_->List().size(), 1u);  // it is still there
  }
  // All that it used is gone but for what it holds itself.
  disk_->answers.Notify();
  Notification never;
  while (!waits_->List().empty()) never.WaitFor(absl::Milliseconds(1));
}

TEST_F(FileKernelTest, NoMoreRunAtOnceThanThereAreThreads) {
  const auto threads = std::make_shared<FileThreads>(FileThreadsOptions{.max_threads = 2, .waits = waits_});
  std::vector<std::unique_ptr<FileTestNode>> reads;
  for (int i = 0; i < 6; ++i) {
    reads.push_back(std::make_unique<FileTestNode>(FileThreadsOptions{}));
    reads.back()->step.file_threads = threads.get();
    reads.back()->Start();
  }
  disk_->begun.Wait();
  EXPECT_EQ(waits_->List().size(), 6u);
  EXPECT_THAT(waits_->List().back().what, HasSubstr("in line for a thread for files"));
  disk_->answers.Notify();
  for (const auto& read : reads) {
    read->done.Wait();
    EXPECT_EQ(read->status, absl::OkStatus());
  }
  MutexLock lock(&disk_->mu);
  EXPECT_LE(disk_->most, 2);
}

TEST_F(FileKernelTest, LongWorkWithoutProgressFails) {
  FileTestNode write({.waits = waits_, .stall_timeout = absl::Milliseconds(40)}, /*is_long=*/true);
  write.Start();
  write.done.Wait();
  EXPECT_EQ(write.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(write.status.message(), HasSubstr("FileTestRead of '/a' has not moved for "));
}

TEST_F(FileKernelTest, MemoryThatRunsOutThereFailsTheNode) {
  FileTestNode read({.waits = waits_});
  disk_->throws = true;
  disk_->answers.Notify();
  read.Start();
  read.done.Wait();
  EXPECT_EQ(read.status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace millrace
