rooftune_binary(lookup_bench SRCS lookup_bench.cc DEPS rooftune_test_daemon benchmark::benchmark)
