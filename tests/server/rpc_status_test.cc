#include "server/rpc_status.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "google/rpc/error_details.pb.h"
#include "server/grpc_status.h"

namespace rooftune {
namespace {

google::rpc::ErrorInfo InfoOf(const google::rpc::Status& status) {
  google::rpc::ErrorInfo info;
  EXPECT_GE(status.details_size(), 1);
  EXPECT_TRUE(status.details(0).UnpackTo(&info));
  return info;
}

TEST(RpcStatus, CarriesReasonAndFacts) {
  const auto rpc = ToRpcStatus(Error(absl::StatusCode::kNotFound, "NOT_TUNED", "no record", {{"op", "gemm m=1"}}));
  EXPECT_EQ(rpc.code(), 5);
  EXPECT_EQ(rpc.message(), "no record");
  const auto info = InfoOf(rpc);
  EXPECT_EQ(info.domain(), "rooftune");
  EXPECT_EQ(info.reason(), "NOT_TUNED");
  EXPECT_EQ(info.metadata().at("op"), "gemm m=1");
  EXPECT_EQ(rpc.details_size(), 1);
}

TEST(RpcStatus, ErrorsWithoutReasonGetTheCodesName) {
  EXPECT_EQ(InfoOf(ToRpcStatus(absl::InternalError("x"))).reason(), "INTERNAL");
}

TEST(RpcStatus, WhatMayPassByItselfSaysWhenToRetry) {
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted}) {
    const auto rpc = ToRpcStatus(Error(code, "SERVER_BUSY", "later"));
    ASSERT_EQ(rpc.details_size(), 2);
    google::rpc::RetryInfo retry;
    ASSERT_TRUE(rpc.details(1).UnpackTo(&retry));
    EXPECT_GT(retry.retry_delay().seconds(), 0);
  }
}

TEST(RpcStatus, EverythingFitsTheMetadataLimitOfClients) {
  std::map<std::string, std::string> facts;
  for (int i = 0; i < 100; ++i) facts["k" + std::to_string(i)] = std::string(4000, '\xff');
  std::string message;
  for (int i = 0; i < 5000; ++i) message += "ü";
  const auto status = ToGrpcStatus(Error(absl::StatusCode::kInternal, "STORE_ERROR", message, facts));
  // Percent-encoding triples what is not ASCII; details are sent in base64.
  EXPECT_LT(3 * status.error_message().size() + status.error_details().size() * 4 / 3, 8000u);
}

TEST(RpcStatus, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_EQ(ToRpcStatus(absl::OkStatus()).details_size(), 0);
}

TEST(CleanText, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(CleanText("a\xff\xc3(b", 100),
            "a?"
            "?(b");
  EXPECT_EQ(CleanText("grün €", 100), "grün €");
  EXPECT_EQ(CleanText(std::string("a\0b", 3), 100), "a?b");
  EXPECT_EQ(CleanText("\xed\xa0\x80", 100), std::string(3, '?'));  // a surrogate
  EXPECT_EQ(CleanText("\xc3", 100), "?");                          // cut in the middle
}

TEST(CleanText, CutsBetweenCharacters) {
  EXPECT_EQ(CleanText("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(CleanText("abcdefghi", 8), "abcde…");
  EXPECT_EQ(CleanText("aüüüü", 8), "aüü…");
  EXPECT_EQ(CleanText("abc", 0), "");
}

}  // namespace
}  // namespace rooftune
