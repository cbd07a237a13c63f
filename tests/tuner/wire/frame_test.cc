#include "tuner/wire/frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

#include "absl/time/clock.h"

namespace rooftune {
namespace {

using worker::v1::Frame;

constexpr absl::Duration kPatience = absl::Seconds(10);

class FrameTest : public ::testing::Test {
 protected:
  FrameTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd_), 0); }
  ~FrameTest() override {
    for (const int fd : fd_) {
      if (fd >= 0) close(fd);
    }
  }
  void Close(int end) {
    close(fd_[end]);
    fd_[end] = -1;
  }
  void Send(const std::string& bytes) {
    ASSERT_EQ(send(fd_[0], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  absl::Status ReadStatus(absl::Duration patience = kPatience) {
    return ReadFrame(fd_[1], absl::Now() + patience).status();
  }
  int fd_[2];
};

Frame Sized(size_t bytes) {
  Frame frame;
  frame.set_id(7);
  frame.mutable_compile_result()->set_cubin(std::string(bytes, 'x'));
  return frame;
}

TEST_F(FrameTest, LengthIsLittleEndian) {
  Frame frame;
  frame.set_id(5);
  ASSERT_TRUE(WriteFrame(fd_[0], frame).ok());
  char bytes[16];
  ASSERT_EQ(read(fd_[1], bytes, sizeof bytes), 6);
  EXPECT_EQ(std::string(bytes, 6), std::string("\x02\x00\x00\x00\x08\x05", 6));
}

TEST_F(FrameTest, SeveralFramesKeepTheirBorders) {
  for (int i = 1; i <= 3; ++i) {
    Frame frame;
    frame.set_id(i);
    ASSERT_TRUE(WriteFrame(fd_[0], frame).ok());
  }
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto frame = ReadFrame(fd_[1], absl::Now() + kPatience);
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(frame->id(), i);
  }
}

TEST_F(FrameTest, LargeFramePassesThroughASmallSocketBuffer) {
  const Frame frame = Sized(9 << 20);
  std::thread writer([&] { EXPECT_TRUE(WriteFrame(fd_[0], frame).ok()); });
  const auto got = ReadFrame(fd_[1], absl::Now() + kPatience);
  writer.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->compile_result().cubin(), frame.compile_result().cubin());
}

TEST_F(FrameTest, RefusesToWritePastTheLimit) {
  EXPECT_EQ(WriteFrame(fd_[0], Sized(kMaxFrameBytes + 1)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FrameTest, LengthPastTheLimitIsDataLoss) {
  Send(std::string("\x01\x00\x00\x04", 4));  // 64 MiB + 1
  EXPECT_EQ(ReadStatus().code(), absl::StatusCode::kDataLoss);
}

TEST_F(FrameTest, ContentThatIsNoFrameIsDataLoss) {
  Send(std::string("\x03\x00\x00\x00\xff\xff\xff", 7));
  EXPECT_EQ(ReadStatus().code(), absl::StatusCode::kDataLoss);
}

TEST_F(FrameTest, EndOfStreamIsUnavailableWhereverItComes) {
  const std::string whole("\x02\x00\x00\x00\x08\x05", 6);
  for (size_t cut : {0u, 2u, 4u, 5u}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ASSERT_EQ(write(pair[0], whole.data(), cut), static_cast<ssize_t>(cut));
    close(pair[0]);
    EXPECT_EQ(ReadFrame(pair[1], absl::Now() + kPatience).status().code(), absl::StatusCode::kUnavailable) << cut;
    close(pair[1]);
  }
}

TEST_F(FrameTest, ReadGivesUpAtTheDeadlineEvenInsideAFrame) {
  EXPECT_EQ(ReadStatus(absl::Milliseconds(5)).code(), absl::StatusCode::kDeadlineExceeded);
  Send(std::string("\x20\x00\x00\x00\x08", 5));
  EXPECT_EQ(ReadStatus(absl::Milliseconds(5)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(FrameTest, WriteGivesUpWhenThePeerDoesNotRead) {
  const auto status = WriteFrame(fd_[0], Sized(8 << 20), absl::Now() + absl::Milliseconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(FrameTest, WriteToAClosedPeerIsAnErrorNotASignal) {
  Close(1);
  EXPECT_EQ(WriteFrame(fd_[0], Sized(10)).code(), absl::StatusCode::kUnavailable);
}

TEST(FrameFileTest, FilesHoldFramesToo) {
  FILE* file = tmpfile();
  ASSERT_NE(file, nullptr);
  const int fd = fileno(file);
  ASSERT_TRUE(WriteFrame(fd, Sized(100)).ok());
  ASSERT_TRUE(WriteFrame(fd, Sized(0)).ok());
  lseek(fd, 0, SEEK_SET);
  ASSERT_TRUE(ReadFrame(fd, absl::InfiniteFuture()).ok());
  ASSERT_TRUE(ReadFrame(fd, absl::InfiniteFuture()).ok());
  EXPECT_EQ(ReadFrame(fd, absl::InfiniteFuture()).status().code(), absl::StatusCode::kUnavailable);
  fclose(file);
}

}  // namespace
}  // namespace rooftune
